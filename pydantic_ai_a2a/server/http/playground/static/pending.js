// The forms of a task that waits for its client: approvals, questions, results of external calls, and sign-ins.

import { messageOf } from './api.js';
import { button, el, link, plainName } from './dom.js';
import { SchemaForm } from './forms.js';
import { readJson, writeJson } from './json.js';
import { drawArguments, drawParts } from './parts.js';
import { isForApprover, isPending } from './task.js';

const SENT = 'message.parts[0].data';
const HIDDEN = 'The operator of the server, or a remote agent, hides the arguments.';
export const DECISIONS = { approve: 'Approved', deny: 'Denied', result: 'Answered', retry: 'Asked again' };

// Return the forms for a question. answer(parts) sends the answer, and throws what the server refuses.
export function drawQuestion(question, answer) {
  const data = question.parts.find(isPending)?.data ?? {};
  const text = question.parts.map((part) => part.text ?? '').join('');
  if (data.pending?.length) {
    const forms = data.pending.map((call) => drawCall(call, answer));
    const approvals = forms.filter((form) => form.decide);
    return approvals.length > 1 ? [drawTogether(approvals, answer), ...forms] : forms;
  }
  if (data.authorization) return [drawSignIn(text, data.authorization, answer)];
  if (data.schema) return [drawSchema(text, data.schema, answer)];
  return null;
}

// Return the form of a question that text answers: in the conversation, the message field is this form.
export function drawTextQuestion(question, answer) {
  const form = new SchemaForm({ type: 'string', maxLength: 1_000 }, {}, undefined, 'message.parts[0].text', 'Answer');
  return card('Question', { text: null }, form, () => answer([{ text: form.read() }]), 'Answer', [
    el('div', { class: 'agent' }, drawParts(question.parts.filter((part) => !isPending(part)), { markdown: true })),
    form.element,
  ]);
}

// Let a form stand where it is, with its outcome in the place of its buttons. It takes nothing any more.
export function endForm(form, outcome) {
  form.inert = true;
  form.classList.add('ended');
  (form.querySelector('.acts') ?? form).append(el('p', { class: 'outcome' }, outcome));
}

// Return the form of an agent that wants data at the beginning of a task. send(parts) sends the data.
export function drawInput(schema, send) {
  const form = drawSchema('This agent takes data that fits a schema.', schema, send, ['Data', 'Send']);
  form.classList.add('input');
  return form;
}

// Whether the message field answers the question.
export function takesText(question) {
  const data = question?.parts.find(isPending)?.data ?? {};
  return question !== null && !data.pending?.length && !data.authorization && !data.schema;
}

function drawCall(call, answer) {
  const form = drawAnswer(call, answer);
  form.callId = call.id;
  return form;
}

function drawAnswer(call, answer) {
  if (isForApprover(call)) return drawWait(call);
  if (call.kind === 'authorization') return drawSignIn(call.text, call.metadata ?? {}, answer, call.tool);
  const choices = Object.fromEntries((call.answerSchema?.oneOf ?? []).map((choice) => [choice.properties.decision.const, choice]));
  const send = (decision, fields) => answer([{ data: { callAnswers: [{ id: call.id, decision, ...fields }] } }]);
  const defs = call.answerSchema?.$defs;
  return call.kind === 'approval' ? drawApproval(call, choices, defs, send) : drawResult(call, choices, defs, send);
}

// Show a call that waits for an approver.
function drawWait(call) {
  const parts = [call.description ? el('p', { class: 'hint plain' }, call.description) : null, call.args ? drawArguments(call.args) : el('p', { class: 'hint' }, HIDDEN)];
  const name = { class: 'ask', role: 'group', 'aria-label': `Waits for an approver: ${plainName(call.tool)}` };
  return el('div', name, el('p', { class: 'kind' }, 'Waits for an approver', el('code', {}, plainName(call.tool))), el('p', { class: 'plain' }, plainText(call)), parts);
}

function drawApproval(call, choices, defs, send) {
  const place = `${SENT}.callAnswers[0].args`;
  const schema = choices.approve?.properties.args;
  const form = schema && call.args ? new SchemaForm(schema, defs, call.args, place, 'Arguments') : null;
  const reason = el('input', { type: 'text', 'aria-label': 'Reason for the denial', placeholder: 'Reason (optional)', autocomplete: 'off' });
  const approved = () => {
    const args = form ? form.read() : call.args;
    return args === call.args ? {} : { args };
  };
  const denied = () => (reason.value.trim() ? { reason: reason.value.trim() } : {});
  const box = card('Approval', { ...call, text: plainText(call) }, form, () => send('approve', approved()), 'Approve', [
    call.description ? el('p', { class: 'hint plain' }, call.description) : null,
    form ? form.element : call.args ? drawArguments(call.args) : el('p', { class: 'hint' }, HIDDEN),
  ], [reason, ['Deny', () => send('deny', denied())]]);
  box.decide = (decision) => ({ id: call.id, decision, ...(decision === 'approve' ? approved() : denied()) });
  return box;
}

const plainText = (call) => (tellsOnlyArguments(call) ? 'The agent wants to call this tool.' : call.text);

// Whether the question of a call has its arguments and nothing else. The form shows them.
function tellsOnlyArguments({ text, tool, args }) {
  const start = `May I call ${tool} `;
  try {
    return text.startsWith(start) && text.endsWith('?') && writeJson(readJson(text.slice(start.length, -1))) === writeJson(args);
  } catch {
    return false;
  }
}

// Buttons that decide about several calls with one message.
function drawTogether(forms, answer) {
  const complaint = el('p', { class: 'complaint', role: 'alert' });
  const send = async (decision) => {
    if (box.ariaBusy) return;
    box.ariaBusy = 'true';
    complaint.textContent = '';
    try {
      await answer([{ data: { callAnswers: forms.map((form) => form.decide(decision)) } }]);
    } catch (error) {
      complaint.textContent = error.violations?.map(({ field, description }) => `${field.replace(/^.*callAnswers\[(\d+)]\.(args\.)?/, '')} ${description}`).join('\n') || messageOf(error);
    }
    box.ariaBusy = null;
  };
  const box = el(
    'div',
    { class: 'together', role: 'group', 'aria-label': `${forms.length} calls` },
    el('span', {}, `${forms.length} calls wait for an approval.`),
    button(`Approve all ${forms.length}`, () => send('approve'), 'primary'),
    button(`Deny all ${forms.length}`, () => send('deny')),
    complaint,
  );
  return box;
}

function drawResult(call, choices, defs, send) {
  const own = choices.result?.properties.result ?? {};
  const schema = call.kind === 'question' && !Object.keys(own).length ? { type: 'string' } : own;
  const form = new SchemaForm(schema, defs, undefined, `${SENT}.callAnswers[0].result`, 'Answer');
  const reason = el('input', { type: 'text', 'aria-label': 'Necessary change', placeholder: 'Necessary change', autocomplete: 'off' });
  const title = call.kind === 'question' ? 'Question' : 'External call';
  return card(title, call, form, () => send('result', { result: form.read() ?? null }), 'Answer', [form.element], [
    reason,
    ['Ask again', () => send('retry', { reason: reason.value.trim() })],
  ]);
}

function drawSchema(text, schema, answer, [title, label] = ['Question', 'Answer']) {
  const { $defs, ...own } = schema;
  const form = new SchemaForm(own, $defs, undefined, SENT, label);
  return card(title, { text }, form, () => answer([{ data: form.read() ?? null }]), label, [form.element]);
}

function drawSignIn(text, { schemes, url }, answer, tool) {
  const ways = schemes?.length ? `Ways to sign in: ${schemes.map(plainName).join(', ')}` : null;
  return card('Sign-in', { text, tool }, null, () => answer([{ text: 'Access was granted.' }]), 'I have signed in', [
    url ? el('p', {}, link(url, url)) : null,
    ways && el('p', { class: 'hint' }, ways),
  ]);
}

function card(title, { text, tool }, form, submit, label, content, [extra, [other, otherAct]] = [null, []]) {
  const complaint = el('p', { class: 'complaint', role: 'alert' });
  const run = async (act) => {
    if (box.ariaBusy) return; // A second Enter is no second answer.
    box.ariaBusy = 'true';
    complaint.textContent = '';
    form?.complain([]);
    try {
      await act();
    } catch (error) {
      const violations = error.violations ?? [];
      const rest = form?.complain(violations) ?? violations;
      if (rest.length || !violations.length) complaint.textContent = rest.map(describe).join('\n') || messageOf(error);
    }
    box.ariaBusy = null;
  };
  // The form would take Enter for its first button: a reason to deny a call would approve it.
  extra?.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.isComposing) return;
    event.preventDefault();
    run(otherAct);
  });
  const onsubmit = (event) => {
    event.preventDefault();
    run(submit);
  };
  const box = el(
    'form',
    { class: 'ask', tabindex: -1, 'aria-label': tool ? `${title}: ${plainName(tool)}` : title, onsubmit, novalidate: true },
    el('p', { class: 'kind' }, title, tool ? el('code', {}, plainName(tool)) : null),
    text === null ? null : el('p', { class: 'plain' }, text),
    content,
    complaint,
    el('div', { class: 'acts' }, el('button', { type: 'submit', class: 'primary' }, label), other && button(other, () => run(otherAct)), extra),
  );
  return box;
}

const describe = ({ field, description }) => `${field.replace(/^message\.parts\[0]\.(data\.)?(callAnswers\[0]\.)?/, '')} ${description}`;
