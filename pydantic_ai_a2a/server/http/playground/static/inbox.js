// The inbox: the decisions and answers that wait for the caller, in all conversations.
//
// New forms come at the end, and no form moves or goes while somebody looks: a form that is decided, here or by somebody
// else, says so and takes nothing any more. So nothing changes under the pointer, and a second press decides nothing.

import { ApiError, messageOf } from './api.js';
import { el, newId, plainName } from './dom.js';
import { writeJson } from './json.js';
import { drawJson } from './parts.js';
import { DECISIONS, drawQuestion, drawTextQuestion, endForm } from './pending.js';
import { answerTo, callsOf, isForApprover, isPending } from './task.js';
import { FIRST_PAUSE, LONGEST_PAUSE, repeated } from './tries.js';

const MOST = 20; // tasks with forms. The next ones come when some are decided.
const SHOWN = 5_000; // milliseconds between two looks while the inbox is shown
const HIDDEN = 30_000;
const SHARE = 10; // A pause is at least so many times as long as the work of the server before.
const LONGEST_REST = 120_000; // At most so long: if this machine slept during a look, the server did not work all the time.
const STATES = ['INPUT_REQUIRED', 'AUTH_REQUIRED'];

const stateOf = (task) => task.status.state.replace('TASK_STATE_', '');
const wordsOf = (state) => state.toLowerCase().replace('_', ' ');

export class Inbox {
  // counted({ count, more, refused }) is called after each change, answered(id) once a task has its answer.
  constructor({ api, chat, element, status, counted, answered, denied }) {
    Object.assign(this, { api, chat, element, status, counted, answered, denied });
    this.shown = false;
    this.started = false;
    this.session = new AbortController();
    this.list = el('div', {}); // in the page only while it is shown
    this.#clear();
    document.addEventListener('visibilitychange', () => {
      if (document.hidden) this.#sweep();
      this.check?.();
    });
    for (const kind of ['pointerdown', 'keydown']) element.addEventListener(kind, () => (this.byKeys = kind === 'keydown'), { capture: true });
  }

  // Begin anew, such as with other credentials. linked: the task of a link. lists: false if the server refuses lists.
  start(linked, lists = true) {
    this.started = true;
    this.session.abort();
    this.check?.();
    this.session = new AbortController();
    this.#clear();
    this.#tell();
    this.#keep(linked, lists, this.session.signal);
  }

  show(shown) {
    this.shown = shown;
    this.element.replaceChildren(...(shown ? [this.list] : []));
    if (shown) this.wake();
    else this.#sweep();
  }

  focus() {
    (this.#forms()[0] ?? this.element).focus();
  }

  // Look at once, unless the server wants a pause.
  wake() {
    this.woken = true;
    this.check?.();
  }

  #clear() {
    this.groups = []; // of forms: what a task waits with at one time
    this.more = false; // True if more tasks wait than the page has read.
    this.looked = false;
    this.spent = 0; // milliseconds in which the server has worked for a look
    this.refused = null;
    this.trouble = '';
    this.news = '';
    this.list.replaceChildren();
  }

  // Remove what is decided, while nobody looks.
  #sweep() {
    for (const group of this.groups) if (!group.waits) group.element.remove();
    this.groups = this.groups.filter((group) => group.waits);
  }

  async #keep(linked, lists, signal) {
    try {
      if (linked) await this.#open(linked, signal);
      if (!lists) throw new Error('The server lists no tasks for callers from other machines.');
      while (!signal.aborted) {
        this.spent = 0;
        this.woken = false;
        await this.#look(signal);
        const share = Math.min(SHARE * this.spent, LONGEST_REST);
        await this.#rest(Math.max(this.shown ? SHOWN : HIDDEN, share), signal);
      }
    } catch (error) {
      if (signal.aborted) return;
      // Nobody has asked for this look: the field for credentials must not take the keys.
      this.refused = error.status === 401 ? new Error('The server wants credentials.') : error;
      this.#tell();
    }
  }

  // Show the task of a link. One that the caller may not see is like one that does not exist.
  async #open(id, signal) {
    let task = null;
    try {
      task = await this.#asked(() => this.api.task(id), signal);
    } catch (error) {
      if (error.status === 401) throw error;
    }
    if (signal.aborted) return;
    const isTask = task?.id === id && task.status;
    if (!isTask) this.#note('The task of this link does not exist, or you may not see it.');
    else if (!this.#take(task)) this.#note(`Nothing of the task of this link waits for you. The task is ${wordsOf(stateOf(task))}.`);
    if (document.activeElement === document.body) this.focus();
    this.#tell();
  }

  #note(text) {
    this.list.append(el('p', { class: 'notice' }, text));
  }

  // Read what waits.
  async #look(signal) {
    const found = new Set();
    let more = false;
    for (const state of STATES) {
      let token = '';
      do {
        const page = await this.#asked(() => this.#page(state, token), signal);
        if (signal.aborted) return;
        for (const task of page.tasks.reverse()) {
          found.add(task.id);
          if (!this.#take(task)) more ||= this.#count() === MOST && asksOf(task) !== null;
        }
        token = page.nextPageToken;
      } while (token && this.#count() < MOST);
      more ||= Boolean(token);
    }
    // The others have been decided or have ended, or stand on a later page.
    const others = this.groups.filter((group) => group.waits && !found.has(group.id));
    const asked = (request) => this.#asked(request, signal);
    if (this.shown) for (const { id } of others) await this.#lookUp(id, signal, asked);
    else if (!more) for (const group of others) group.waits = false;
    if (signal.aborted) return;
    if (!this.shown) this.#sweep();
    this.more = more;
    this.looked = true;
    this.#tell();
  }

  async #page(state, token) {
    try {
      const page = await this.api.waiting(state, token);
      if (Array.isArray(page.tasks)) return page;
    } catch (error) {
      if (token && error.status === 400) return { tasks: [], nextPageToken: '' }; // Tokens end with a change of the rule.
      throw error;
    }
    throw new Error('The answer of the server is no list of tasks.'); // Perhaps a proxy's own page.
  }

  // Return what the server answers. While it does not, the page says so and asks again.
  async #asked(request, signal) {
    for (let pause = FIRST_PAUSE; !signal.aborted; pause = Math.min(2 * pause, LONGEST_PAUSE)) {
      const began = performance.now();
      try {
        const answer = await request();
        this.spent += performance.now() - began;
        if (this.trouble && !signal.aborted) {
          this.trouble = '';
          this.#tell();
        }
        return answer;
      } catch (error) {
        if (signal.aborted) return null;
        if (isRefusal(error) && error.status !== 429) {
          this.spent += performance.now() - began;
          throw error;
        }
        this.trouble = `${messageOf(error)} The inbox asks again by itself.`;
        this.#tell();
        await this.#rest(Math.max(pause, (error.retryAfter ?? 0) * 1000), signal, false);
      }
    }
    return null;
  }

  // Wait, and go on waiting while nobody sees the page. wakes: wake() ends the pause.
  #rest(time, signal, wakes = true) {
    const until = performance.now() + time;
    return new Promise((resolve) => {
      let timer = null;
      this.check = () => {
        clearTimeout(timer);
        const left = wakes && this.woken ? 0 : until - performance.now();
        if (signal.aborted || (left <= 0 && !document.hidden)) resolve();
        else if (left > 0) timer = setTimeout(this.check, Math.min(left, 2 ** 31 - 1));
      };
      this.check();
    });
  }

  // Take a task as the server tells it. Returns whether a form of the task waits for the caller.
  #take(task) {
    const asked = asksOf(task);
    const groups = this.groups.filter((group) => group.id === task.id);
    const ids = new Set(asked?.ids);
    // The answer of this page may be on its way.
    for (const group of groups) if (asked?.ids.some((id) => group.forms.has(id))) group.question = asked.question;
    for (const group of groups.filter((one) => !one.answering)) {
      for (const id of group.forms.keys()) if (!ids.has(id)) this.#end(group, id, elsewhere(task, group.unsure));
    }
    const fresh = (asked?.ids ?? []).filter((id) => !groups.some((group) => group.forms.has(id)));
    if (fresh.length && (groups.some((group) => group.waits) || this.#count() < MOST)) this.#add(task, asked.question, fresh);
    return this.groups.some((group) => group.id === task.id && group.waits);
  }

  #add(task, question, ids) {
    const group = { id: task.id, question, forms: new Map(), sent: null };
    const answer = (parts) => this.#answer(group, parts);
    const drawn = drawGroup(question, ids, answer);
    for (const form of drawn) if (form.callId !== undefined) group.forms.set(form.callId, form);
    if (!group.forms.size) group.forms.set(ids[0], drawn[0]);
    group.together = drawn.find((form) => form.classList.contains('together'));
    group.element = el('article', { class: 'turn', 'aria-label': 'Waiting task' }, drawHead(task, question), el('div', { class: 'asks' }, drawn));
    group.waits = true;
    this.groups.push(group);
    this.list.append(group.element);
  }

  async #answer(group, parts) {
    const { signal } = this.session;
    const content = writeJson(parts);
    // The same answer once more is the same message: the server may have got it.
    if (group.sent?.content !== content) group.sent = { content, id: newId() };
    const message = { messageId: group.sent.id, role: 'ROLE_USER', parts, taskId: group.id, ...answerTo(group.question) };
    const decided = parts.flatMap((part) => part.data?.callAnswers ?? []);
    const lost = () => {
      this.trouble = 'The server does not answer. The page sends your answer again.';
      this.#tell();
    };
    let answer;
    group.answering = true;
    try {
      answer = await repeated(() => this.api.answer(message), { replays: this.chat.replays, stopped: signal, lost });
    } catch (error) {
      group.answering = false;
      group.unsure = !isRefusal(error); // The server may have got the answer.
      if (error.status === 401) this.denied();
      if (!group.unsure && (await this.#lookUp(group.id, signal))) return;
      throw error;
    } finally {
      this.trouble = '';
      this.#tell();
    }
    group.answering = false;
    if (answer === null) return;
    if (!decided.length) for (const id of group.forms.keys()) this.#end(group, id, 'Answered');
    for (const { id, decision } of decided) this.#end(group, id, DECISIONS[decision] ?? decision);
    if (answer.task) this.#take(answer.task);
    this.#tell();
    this.answered(group.id);
    this.wake();
  }

  // Read a task that may have gone on without this page. Returns whether a form of the task has ended.
  async #lookUp(id, signal, asked = (request) => request()) {
    const before = this.#forms().length;
    let task = null;
    try {
      task = await asked(() => this.api.task(id));
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) return false; // A later look asks again.
      task = { id, status: { state: 'gone' } };
    }
    if (signal.aborted) return false;
    this.#take(task);
    const hasEnded = this.#forms().length < before;
    if (hasEnded) this.answered(id);
    this.#tell();
    return hasEnded;
  }

  #end(group, id, outcome) {
    const form = group.forms.get(id);
    if (!form || form.inert) return;
    const focused = group.element.contains(document.activeElement) && document.activeElement;
    const tool = form.querySelector('.kind code')?.textContent;
    this.news = `${outcome}${tool ? `: ${tool}` : ''}.`;
    endForm(form, outcome);
    const open = [...group.forms.values()].filter((one) => !one.inert);
    if (group.together && !group.together.inert && open.length < group.forms.size) endForm(group.together, outcome);
    group.waits = open.length > 0;
    if (!focused || !focused.closest('[inert]')) return;
    // The next form gets the focus, not one of its buttons: the key that decided decides nothing there.
    const next = this.#forms().find((one) => form.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING);
    (next ?? this.#forms()[0] ?? this.element).focus({ preventScroll: !this.byKeys });
  }

  // The forms that wait.
  #forms() {
    return this.groups.flatMap((group) => [...group.forms.values()]).filter((form) => !form.inert);
  }

  #count() {
    return new Set(this.groups.filter((group) => group.waits).map((group) => group.id)).size;
  }

  #tell() {
    const count = this.#count();
    const { more, refused } = this;
    this.counted({ count: more ? `${count}+` : String(count || ''), refused: refused !== null });
    const waits = more ? `More than ${count} tasks wait for you.` : count === 1 ? 'A task waits for you.' : `${count} tasks wait for you.`;
    const rest = count || more ? waits : this.looked ? 'Nothing waits for you.' : 'Looking for what waits for you…';
    const text = `${this.news} ${refused ? messageOf(refused) : this.trouble || rest}`.trim();
    if (this.status.textContent !== text) this.status.textContent = text; // A screen reader says each new text.
  }
}

// Return what a task asks the caller: the ids of the calls, or of the question; null for nothing.
function asksOf({ status }) {
  const question = status.message;
  if (!question || !STATES.includes(status.state.replace('TASK_STATE_', ''))) return null;
  const calls = callsOf(question);
  if (!calls.length) return { question, ids: [question.messageId] };
  const ids = calls.filter((call) => !isForApprover(call)).map((call) => call.id);
  return ids.length ? { question, ids } : null;
}

const isRefusal = (error) => error instanceof ApiError && error.status < 500;

// What has become of a form whose answer is not known to be of this page.
function elsewhere(task, unsure) {
  const state = stateOf(task);
  if (state === 'gone') return 'This task is gone';
  const isOver = ['FAILED', 'CANCELED', 'REJECTED'].includes(state);
  if (isOver) return `The task is ${wordsOf(state)}`;
  return `${unsure ? 'You or somebody else has decided' : 'Somebody else was first'}: the task is ${wordsOf(state)}`;
}

function drawGroup(question, ids, answer) {
  const parts = question.parts.map((part) => {
    const calls = isPending(part) && part.data?.pending?.filter((call) => ids.includes(call.id));
    return calls ? { ...part, data: { ...part.data, pending: calls } } : part;
  });
  try {
    return drawQuestion({ ...question, parts }, answer) ?? [drawTextQuestion(question, answer)];
  } catch {
    return [drawJson(question)]; // Whatever an agent has said is shown.
  }
}

function drawHead({ id, contextId, status }, question) {
  const name = question.parts.find(isPending)?.data?.askedBy?.id;
  const time = new Date(status.timestamp);
  return el(
    'p',
    { class: 'hint since' },
    el('span', {}, 'Since ', el('time', { datetime: status.timestamp }, time.toLocaleString([], { dateStyle: 'medium', timeStyle: 'short' }))),
    name ? el('span', {}, `Asked by ${plainName(name)}`) : null,
    // The context of a task of somebody else is not told.
    contextId && contextId !== id ? el('a', { href: `#${new URLSearchParams({ context: contextId })}` }, 'Conversation') : null,
  );
}
