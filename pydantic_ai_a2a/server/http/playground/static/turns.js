// Draws a task as a turn of the conversation. Only blocks that have changed are drawn again.

import { RUN_METADATA } from './api.js';
import { button, byId, copyButton, el, icon, pieces, plainName } from './dom.js';
import { readJson, writeJson } from './json.js';
import { drawArguments, drawData, drawJson, drawParts } from './parts.js';
import { DECISIONS, drawQuestion } from './pending.js';
import { callsOf } from './task.js';

const ENDS = { CANCELED: 'Canceled', REJECTED: 'Rejected', FAILED: 'Failed' };

export class Turn {
  // actions: answer(task, parts), cancel(task), retry(task)
  constructor(task, actions) {
    this.task = task;
    this.actions = actions;
    this.version = -1;
    this.nodes = new Map();
    this.blocks = el('div', { class: 'blocks' });
    this.asks = el('div', { class: 'asks' });
    this.status = el('span', {});
    this.stop = button('Cancel task', () => actions.cancel(task), 'quiet small');
    this.again = button('Try again', () => actions.retry(task), 'quiet small');
    this.copy = copyButton(() => task.answer, 'Copy answer');
    this.usage = el('small', { class: 'usage' });
    this.foot = el('div', { class: 'foot' }, this.status, this.stop, this.again, this.copy, this.usage);
    this.element = el('article', { class: 'turn', 'aria-label': 'Task' }, this.blocks, this.asks, this.foot);
  }

  draw() {
    const { task } = this;
    if (task.version === this.version) return;
    this.version = task.version;
    if (task.id) this.element.id = `task-${task.id}`;
    this.element.setAttribute('aria-busy', String(task.streaming));
    this.#drawBlocks();
    this.#drawQuestion();
    this.#drawFoot();
  }

  #drawBlocks() {
    const shown = new Map(this.task.ordered.filter(([, block]) => !block.hidden && !this.#isOpen(block)));
    for (const [key, { node }] of this.nodes) {
      if (!shown.has(key)) {
        node.remove();
        this.nodes.delete(key);
      }
    }
    let place = this.blocks.firstChild;
    for (const [key, block] of shown) {
      const drawn = this.nodes.get(key) ?? { version: 0, node: el('div') };
      this.nodes.set(key, drawn);
      if (drawn.version !== block.version) this.#drawBlock(drawn.node, block);
      drawn.version = block.version;
      if (drawn.node === place) place = place.nextSibling;
      else this.blocks.insertBefore(drawn.node, place);
    }
  }

  // The open question is drawn as forms.
  #isOpen(block) {
    return block.kind === 'asked' && block.message.messageId === this.task.question?.messageId;
  }

  #drawBlock(node, block) {
    const open = node.querySelector(':scope > details')?.open;
    node.className = `block ${block.kind}`;
    try {
      node.replaceChildren(...DRAW[block.kind](block, this.task).filter(Boolean));
    } catch {
      const { kind, version, ...content } = block;
      node.replaceChildren(drawJson(content)); // Whatever an agent has said is shown.
    }
    if (open) node.querySelector(':scope > details').open = true;
  }

  #drawQuestion() {
    const { task, actions } = this;
    const id = task.question?.messageId ?? null;
    if (this.asked === id) return;
    this.asked = id;
    if (id === null) return this.#replaceAsks();
    try {
      const forms = drawQuestion(task.question, (parts) => actions.answer(task, parts));
      this.#replaceAsks(...(forms ?? [el('div', { class: 'block agent' }, author('Agent'), drawParts(task.question.parts, { markdown: true }))]));
    } catch {
      this.#replaceAsks(drawJson(task.question));
    }
  }

  // The focus goes on to the next form, or to the message field.
  #replaceAsks(...forms) {
    const focused = this.asks.contains(document.activeElement);
    this.asks.replaceChildren(...forms);
    if (focused) (this.asks.querySelector('input, select, textarea, button') ?? byId('text')).focus();
  }

  #drawFoot() {
    const { task, status, stop, again, foot } = this;
    const lost = task.lost ? 'Connection lost. Reconnecting…' : '';
    status.textContent = lost || (task.streaming ? (task.state === 'SUBMITTED' ? 'Queued' : 'Working') : (ENDS[task.state] ?? ''));
    status.className = task.streaming || lost ? 'working' : 'end';
    const focused = foot.contains(document.activeElement);
    stop.hidden = !task.id || task.ended;
    stop.setAttribute('aria-disabled', String(task.cancelling === true)); // A disabled button would lose the focus.
    again.hidden = !task.broken;
    this.usage.textContent = task.ended ? usageOf(task) : '';
    if (this.copy) this.copy.hidden = !task.ended || !task.answer;
    foot.hidden = stop.hidden && again.hidden && !status.textContent && !this.usage.textContent && (this.copy?.hidden ?? true);
    if (focused && stop.hidden && again.hidden) byId('text').focus();
  }
}

// Tokens and seconds of a task, as far as they are known.
function usageOf({ metadata, spent }) {
  const { model, usage } = metadata[RUN_METADATA] ?? {};
  const tokens = usage ? `${(usage.inputTokens ?? 0).toLocaleString()} tokens in, ${(usage.outputTokens ?? 0).toLocaleString()} out` : null;
  return [model && plainName(model), tokens, spent === undefined ? null : `${(spent / 1000).toFixed(1)}\u00a0s`].filter(Boolean).join(' · ');
}

const author = (name) => el('h2', { class: 'hidden-text' }, name);

const DRAW = {
  user: ({ message }, task) => [author('You'), el('div', { class: 'bubble' }, drawUser(message, task))],
  agent: ({ message }) => [author('Agent'), ...drawParts(message.parts, { markdown: true })],
  asked: ({ message }) => [author('Agent'), el('p', { class: 'plain faint' }, callsOf(message).map((call) => call.text).join('\n') || message.parts[0]?.text)],
  artifact: ({ artifact }, task) => [
    author('Agent'),
    artifact.name && artifact.name !== 'result' ? el('p', { class: 'label' }, plainName(artifact.name)) : null,
    ...drawParts(artifact.parts, { markdown: true, whole: !task.streaming }),
  ],
  thought: ({ text }) => [el('details', {}, el('summary', {}, icon('thought'), 'Thought', el('span', { class: 'preview' }, oneLine(text))), el('p', { class: 'plain faint' }, pieces(text)))],
  tool: ({ name, args, outcome, result }, task) => [
    el(
      'details',
      {},
      el(
        'summary',
        {},
        icon('tool'),
        el('code', {}, plainName(name)),
        el('small', {}, outcome === null ? (task.waiting ? 'waits' : 'runs') : outcome === 'success' ? 'done' : plainName(outcome)),
        el('span', { class: 'preview' }, oneLine([args && Object.keys(args).length ? writeJson(args) : '', result].filter(Boolean).join(' → '))),
      ),
      args === undefined ? el('p', { class: 'faint' }, 'The server hides the arguments.') : drawArguments(args),
      result === undefined ? null : result === null ? el('p', { class: 'faint' }, 'The server hides the result.') : [el('p', { class: 'label' }, outcome === 'failed' ? 'Error' : 'Result'), drawResult(result)],
    ),
  ],
  failure: ({ text, id, logged, error }) => [
    el('p', { role: 'alert' }, text || 'The task failed.'),
    error ? el('pre', { class: 'plain' }, pieces(error)) : null,
    id ? el('p', { class: 'hint' }, logged ? 'The log of the server has the reason. ' : '', `Correlation id: ${plainName(id)}`) : null,
  ],
};

const oneLine = (text) => plainName(text.slice(0, 300).replace(/\s+/g, ' '));

// A result is JSON, or a text.
function drawResult(result) {
  try {
    const data = readJson(result);
    if (typeof data === 'object' && data !== null) return drawData(data, { python_type: 'Result' });
  } catch {
    // A text.
  }
  return el('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': 'Result' }, el('pre', {}, pieces(result || '(empty)')));
}

// Return what a user sent: text, files and data, or decisions about waiting calls.
function drawUser(message, task) {
  const decided = message.parts.flatMap((part) => part.data?.callAnswers ?? []);
  if (!decided.length) return drawParts(message.parts);
  const calls = [...task.blocks.values()].flatMap((block) => (block.kind === 'asked' ? callsOf(block.message) : []));
  return decided.map(({ id, decision, args, result, reason }) => {
    const call = calls.find((one) => one.id === id);
    const tool = call?.tool ?? '';
    const content = args ?? result;
    const said = el('p', {}, DECISIONS[decision] ?? decision, ' ', tool ? el('code', {}, plainName(tool)) : null, reason ? `: ${reason}` : null);
    const about = call?.kind === 'approval' ? (args || !call.args ? null : oneLine(writeJson(call.args))) : call && oneLine(call.text);
    return [said, about && el('p', { class: 'hint' }, about), content === undefined ? null : typeof content === 'object' ? drawData(content) : el('p', { class: 'plain' }, String(content))];
  }).flat();
}
