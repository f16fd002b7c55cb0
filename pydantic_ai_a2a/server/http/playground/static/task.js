// A task as a list of blocks, made of snapshots and events. Holds data only.

import { writeJson } from './json.js';

const PENDING = 'application/vnd.pydantic-ai.pending-calls+json';
const PENDING_CALLS = 'https://pypi.org/project/pydantic-ai-a2a/#pending-calls-v1';
const ENDED = new Set(['COMPLETED', 'FAILED', 'CANCELED', 'REJECTED', 'FORGOTTEN']);

const ANSWER = 'final_result'; // the tool by which a model gives data as its answer

export const isPending = (part) => (part?.mediaType ?? part?.metadata?.type) === PENDING;

// The calls of a question that wait.
export function callsOf(question) {
  const calls = Array.isArray(question?.parts) && question.parts.find(isPending)?.data?.pending;
  return Array.isArray(calls) ? calls : [];
}

// Whether only an approver can give the approval of a call.
export const isForApprover = (call) => call?.decidedBy === 'approver';

// A message to a task that names the question that it answers. Words have no other name of it.
export const answerTo = (question) => (question?.messageId ? { metadata: { [PENDING_CALLS]: { question: question.messageId } } } : {});

const textOf = (parts) => (parts.every((part) => part.text !== undefined) ? parts.map((part) => part.text).join('') : null);

const isDecision = (block) => block.kind === 'user' && block.message.parts.some((part) => part.data?.callAnswers);

// The first words of the user.
export function titleOf(messages) {
  const first = messages.find((message) => message.role === 'ROLE_USER');
  return first?.parts.map((part) => part.text ?? part.filename ?? '').join(' ').slice(0, 80) ?? '';
}

export class Task {
  constructor(contextId = null) {
    this.id = null;
    this.contextId = contextId;
    this.state = 'SENDING';
    this.lastEventId = '';
    this.blocks = new Map(); // key -> {kind, version, ...}, in the order of the page
    this.question = null; // the message that the task waits with
    this.version = 0;
    this.steps = []; // of a developer's server: what the agent did, in its order
    this.metadata = {};
  }

  // The first words of the task.
  get title() {
    return titleOf([...this.blocks.values()].map((block) => block.message).filter(Boolean));
  }

  get ended() {
    return ENDED.has(this.state);
  }

  get waiting() {
    return this.state === 'INPUT_REQUIRED' || this.state === 'AUTH_REQUIRED';
  }

  // Whether nothing that the task waits with is for this caller.
  get waitsForApprover() {
    const calls = callsOf(this.question);
    return calls.length > 0 && calls.every(isForApprover);
  }

  // Whether the task goes on without an answer of this caller.
  get goesOn() {
    return !this.ended && (this.state !== 'INPUT_REQUIRED' || this.waitsForApprover);
  }

  get streaming() {
    return !this.ended && !this.waiting;
  }

  // Take an event of a stream.
  take(id, event) {
    if (id) this.lastEventId = id;
    if (event.task) {
      this.missEvents();
      this.load(event.task);
    } else if (event.statusUpdate) this.#takeStatus(event.statusUpdate);
    else if (event.artifactUpdate) this.#takeArtifact(event.artifactUpdate);
    else if (event.message) this.#takeReply(event.message);
  }

  // Take the steps so far, as a developer's server tells them.
  takeSteps(steps) {
    const known = this.steps.length;
    this.steps = steps;
    steps.forEach((step, n) => {
      if (step.kind === 'thinking' && step.text.trim()) this.#putNew(this.#keyOf(step, n), { kind: 'thought', text: step.text });
      else if (step.kind === 'call' && step.tool !== ANSWER) this.#putNew(this.#keyOf(step, n), { kind: 'tool', name: step.tool, args: step.args, outcome: null });
      const block = step.kind === 'return' && this.blocks.get(`tool ${step.id}`);
      if (block && block.result !== step.result) this.#put(`tool ${step.id}`, { ...block, outcome: step.outcome, result: step.result });
      if (step.kind === 'error' && this.blocks.has('end')) this.#put('end', { ...this.blocks.get('end'), error: step.text });
    });
    if (this.ended) this.#stopTools();
    if (known !== steps.length) this.version++;
  }

  // An event may have shown a step already.
  #keyOf(step, n) {
    if (step.kind === 'call') return `tool ${step.id}`;
    if (step.kind !== 'thinking') return null;
    return [...this.blocks].find(([, block]) => block.kind === 'thought' && block.text === step.text)?.[0] ?? `step ${n}`;
  }

  // The blocks in the order of the page. Steps follow the message or the text after which they came.
  get ordered() {
    if (!this.steps.length) return [...this.blocks];
    const keys = this.steps.map((step, n) => this.#keyOf(step, n));
    const thoughts = new Set(this.steps.filter((step) => step.kind === 'thinking').map((step) => step.text));
    const others = [...this.blocks].filter(([key, block]) => !keys.includes(key) && !(block.kind === 'thought' && thoughts.has(block.text)));
    const used = new Set();
    const following = new Map([[null, []], ...others.map(([key]) => [key, []])]);
    let place = null;
    const goTo = (fits) => {
      const found = others.find(([key, block]) => !used.has(key) && fits(block));
      if (!found) return false;
      used.add(found[0]);
      place = found[0];
      return true;
    };
    this.steps.forEach((step, n) => {
      const says = (block) => textOf((block.message ?? block.artifact)?.parts ?? []) === step.text;
      if (step.kind === 'prompt') goTo((block) => block.kind === 'user' && says(block)) || goTo((block) => block.kind === 'user' && !isDecision(block));
      else if (step.kind === 'resumed') {
        // Behind the last of the answers to the calls before.
        const start = others.findIndex(([key]) => key === place);
        const first = others.findIndex(([, block], index) => index > start && isDecision(block));
        for (let at = first; at >= 0 && at < others.length && isDecision(others[at][1]); at++) [place] = others[at];
      } else if (step.kind === 'text') goTo((block) => !block.hidden && block.kind !== 'user' && says(block));
      else if (this.blocks.has(keys[n]) && !used.has(keys[n])) {
        used.add(keys[n]);
        following.get(place).push([keys[n], this.blocks.get(keys[n])]);
      }
    });
    return [...following.get(null), ...others.flatMap((entry) => [entry, ...following.get(entry[0])])];
  }

  // Take a whole task.
  load(task) {
    this.id = task.id;
    this.contextId = task.contextId ?? this.contextId;
    this.metadata = task.metadata ?? {};
    for (const message of task.history ?? []) this.addMessage(message);
    this.#setStatus(task.status);
    const texts = new Set((task.history ?? []).filter((one) => one.role === 'ROLE_AGENT').map((one) => textOf(one.parts)));
    for (const artifact of task.artifacts ?? []) {
      const text = textOf(artifact.parts);
      this.#put(`artifact ${artifact.artifactId}`, { kind: 'artifact', artifact, hidden: text !== null && texts.has(text) });
    }
  }

  addMessage(message) {
    const kind = message.role === 'ROLE_USER' ? 'user' : message.parts.some(isPending) ? 'asked' : 'agent';
    const key = `message ${message.messageId}`;
    if (this.blocks.get(key)?.kind !== kind) this.#put(key, { kind, message });
  }

  fail(text) {
    this.#put('failure', { kind: 'failure', text });
  }

  // The server has begun anew, and does not have the task any more.
  forget() {
    this.state = 'FORGOTTEN';
    this.question = null;
    this.#stopTools();
    this.fail('The server has restarted and forgot this task.');
  }

  clearFailure() {
    if (this.blocks.delete('failure')) this.version++;
  }

  #takeReply(message) {
    this.contextId = message.contextId ?? this.contextId;
    this.addMessage(message);
    this.state = 'COMPLETED';
    this.version++;
  }

  #takeStatus({ taskId, contextId, status, metadata }) {
    this.id = taskId;
    this.metadata = metadata ?? this.metadata;
    this.contextId = contextId ?? this.contextId;
    const progress = status.message?.metadata?.progress;
    if (progress === 'thinking' || progress === 'tool') this.#takeProgress(status.message, progress);
    else this.#setStatus(status);
  }

  // The last answer as a text, such as for the clipboard.
  get answer() {
    const block = [...this.blocks.values()].findLast((one) => !one.hidden && (one.kind === 'agent' || one.kind === 'artifact'));
    return (block?.message ?? block?.artifact)?.parts.map((part) => part.text ?? (part.data === undefined ? '' : writeJson(part.data, { lines: true }))).join('\n') ?? '';
  }

  #setStatus(status) {
    const was = this.state;
    this.state = status.state.replace('TASK_STATE_', '');
    // The time of the work of the agent, without the time of the client's answers.
    if (this.state === 'WORKING' && was !== 'WORKING') this.since = Date.parse(status.timestamp);
    else if (was === 'WORKING' && this.state !== 'WORKING' && this.since) this.spent = (this.spent ?? 0) + Date.parse(status.timestamp) - this.since;
    this.question = this.waiting ? (status.message ?? { parts: [] }) : null;
    for (const block of this.blocks.values()) {
      const isWhole = block.kind === 'artifact' && !this.streaming;
      if (block.outcome === null || isWhole) block.version++; // It runs, waits, or gets its colors.
    }
    this.version++;
    if (this.ended) this.#stopTools();
    if (!status.message || this.waiting) return;
    if (this.state === 'FAILED' || this.state === 'REJECTED') {
      const text = textOf(status.message.parts.filter((part) => part.text));
      const { correlationId, failure } = status.message.metadata ?? {};
      this.#put('end', { kind: 'failure', text, id: correlationId, logged: failure !== 'shutdown' });
    } else {
      this.addMessage(status.message);
      this.#hideArtifacts(textOf(status.message.parts));
    }
  }

  // A whole task takes the place of events that this page never gets.
  missEvents() {
    for (const block of this.blocks.values()) if (block.outcome === null) block.missed = true;
  }

  // A task completes only after all of its tools.
  #stopTools() {
    for (const block of this.blocks.values()) {
      if (block.kind === 'tool' && block.outcome === null) {
        block.outcome = this.state === 'COMPLETED' ? 'success' : block.missed ? 'ended' : 'stopped';
        block.version++;
      }
    }
  }

  // The text beside a tool call comes as an artifact first, and then as a message.
  #hideArtifacts(text) {
    for (const block of this.blocks.values()) {
      if (block.kind === 'artifact' && !block.hidden && text !== null && textOf(block.artifact.parts) === text) {
        block.hidden = true;
        block.version++;
      }
    }
  }

  #takeProgress(message, progress) {
    const { phase, toolName, toolCallId } = message.metadata;
    const [part] = message.parts;
    if (progress === 'thinking') this.#put(`thought ${message.messageId}`, { kind: 'thought', text: part.text });
    else if (phase === 'call') this.#put(`tool ${toolCallId}`, { kind: 'tool', name: toolName, args: part?.data, outcome: null });
    else {
      const call = this.blocks.get(`tool ${toolCallId}`) ?? { kind: 'tool', name: toolName };
      this.#put(`tool ${toolCallId}`, { ...call, outcome: part?.data?.outcome ?? 'success' });
    }
  }

  #takeArtifact({ artifact, append, lastChunk }) {
    const key = `artifact ${artifact.artifactId}`;
    const block = this.blocks.get(key);
    if (append && block) {
      appendParts(block.artifact.parts, artifact.parts);
      block.version++;
      this.version++;
      return;
    }
    if (block && !lastChunk) this.blocks.delete(key); // The text begins anew, below the steps so far.
    this.#put(key, { kind: 'artifact', artifact: { ...artifact, parts: [...artifact.parts] }, hidden: false });
  }

  #putNew(key, block) {
    if (!this.blocks.has(key)) this.#put(key, block);
  }

  #put(key, block) {
    const version = (this.blocks.get(key)?.version ?? 0) + 1;
    this.blocks.set(key, { ...block, version });
    this.version++;
  }
}

function appendParts(parts, more) {
  for (const part of more) {
    const last = parts.at(-1);
    if (part.text !== undefined && last?.text !== undefined) parts[parts.length - 1] = { ...last, text: last.text + part.text };
    else parts.push(part);
  }
}
