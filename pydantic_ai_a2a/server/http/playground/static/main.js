// Joins the parts of the page.

import { Access } from './access.js';
import { Api, messageOf } from './api.js';
import { drawCard, drawEarlier, drawTasks, drawWelcome } from './card.js';
import { Chat } from './chat.js';
import { byId, el, icon, plainName } from './dom.js';
import { Attachments, takeDrops } from './files.js';
import { Inbox } from './inbox.js';
import { Log } from './log.js';
import { drawInput, takesText } from './pending.js';
import { drawView, switchTheme } from './view.js';
import { Turn } from './turns.js';

const SCHEMAS = 'https://pypi.org/project/pydantic-ai-a2a/#json-schemas-v1';
const PAUSE = 100; // milliseconds between two drawings, which take at most half of the time
const TRACE = 200; // milliseconds between two looks for tasks whose steps are due
const FRESH = 1_500; // milliseconds until the steps of a failed request are due again
const { root, anonymous, files, body, steps } = document.documentElement.dataset;
const [thread, text, state, composer, events, about] = ['thread', 'text', 'state', 'composer', 'events', 'about'].map(byId);

let developer = steps === 'true' && anonymous === 'true' && isLocal(location.hostname);
let timer = null;
let pressed = false; // the mouse button, or a finger
let drawnAt = 0;
let pause = PAUSE;
let card = null;
let drawnStates = '';
let drawnQuestions = '[]';
let title = document.title;
let stepsVersion = null; // of the newest answer with steps
const turns = new Map();

const access = new Access();
const log = new Log(events, changed);
const api = new Api(root, access, log);
const chat = new Chat(api, { changed, denied });
const inbox = new Inbox({ api, chat, element: byId('waiting'), status: byId('told'), counted: showCount, answered: chat.answered, denied });
const attachments = new Attachments({ list: byId('attached'), limits: { files: +files, body: +body }, complain });
const credentials = el('div');
const tasks = el('nav', { 'aria-label': 'Tasks of this conversation' });
const earlier = el('nav', { 'aria-label': 'Earlier conversations' });
const facts = el('div');
const view = el('div');
about.append(credentials, tasks, earlier, view, facts);

function changed() {
  timer ??= setTimeout(() => requestAnimationFrame(draw), Math.max(0, drawnAt + pause - performance.now()));
}

// Change the page. If the thread shows the end of the conversation, it does so afterwards.
function keepEnd(change) {
  const { scrollHeight, scrollTop, clientHeight } = thread;
  change();
  // Only growth moves the thread.
  if (thread.scrollHeight !== scrollHeight && scrollHeight - scrollTop - clientHeight < 80) thread.scrollTop = thread.scrollHeight;
}

// The page stands still while a button is pressed: a control that moves between press and release gets no click.
async function released() {
  while (pressed) await new Promise(requestAnimationFrame);
}

async function draw() {
  await released();
  timer = null;
  drawnAt = performance.now();
  keepEnd(drawTurns);
  if (!events.hidden) log.draw();
  chat.writePlace();
  const asking = takesText(chat.asking?.question ?? null);
  text.placeholder = asking ? 'Answer the question' : 'Send a message';
  const status = (chat.tasks.at(-1)?.state ?? '').toLowerCase().replace('_', ' ');
  if (state.textContent !== status) state.textContent = status; // A screen reader says each new text.
  pause = Math.max(PAUSE, 2 * (performance.now() - drawnAt));
}

function drawTurns() {
  for (const [task, turn] of turns) {
    if (!chat.tasks.includes(task)) {
      turn.element.remove();
      turns.delete(task);
    }
  }
  for (const task of chat.tasks) {
    if (!turns.has(task)) {
      turns.set(task, new Turn(task, chat));
      thread.append(turns.get(task).element);
    }
    turns.get(task).draw();
  }
  const welcome = thread.querySelector('.welcome');
  if (chat.tasks.length) welcome?.remove();
  else if (!welcome && card) thread.append(drawWelcome(card, (example) => {
    fill(example);
    text.focus();
  }));
  const states = JSON.stringify(chat.tasks.map((task) => [task.id, task.state]));
  if (states !== drawnStates) {
    drawnStates = states;
    tasks.replaceChildren(...drawTasks(chat.tasks, leaveSide));
  }
  const questions = JSON.stringify(chat.tasks.map((task) => task.question?.messageId));
  if (questions !== drawnQuestions) {
    drawnQuestions = questions;
    if (inbox.started) inbox.wake();
    else startInbox();
  }
}

function complain(message) {
  byId('complaint').textContent = message;
}

function denied() {
  showSide('about', true);
  const field = credentials.querySelector('input');
  field?.focus();
  notice('denied', field ? 'The server wants credentials.' : 'The server refuses this page: it wants credentials that the agent card does not name.');
}

function notice(name, message) {
  byId(`notice-${name}`)?.remove();
  if (message) byId('notices').append(el('p', { class: 'notice', id: `notice-${name}`, role: 'status' }, message));
}

function fill(message) {
  text.value = message;
  grow();
}

function grow() {
  text.style.height = 'auto';
  text.style.height = `${Math.min(text.scrollHeight, 240)}px`;
}

const placeOf = (task) => task.lastEventId + task.state;
const isDue = (task) => task.id && !task.lost && task.state !== 'FORGOTTEN' && (task.streaming || task.traced !== placeOf(task));

// Read the steps of tasks that have gone on, on a developer's server only. The server waits for the next step of a task
// whose steps are here.
async function trace() {
  const due = chat.tasks.filter(isDue).map((task) => [task, placeOf(task)]);
  const waits = due.length && due.every(([task]) => task.streaming && task.traced);
  const [found, version] = await api.steps(due.map(([task]) => task.id), waits && stepsVersion);
  stepsVersion = version;
  if (found === null) developer = false;
  for (const [task, place] of due) {
    task.traced = place; // Only now: a failed request is sent again.
    if (found?.[task.id]) task.takeSteps(found[task.id]);
  }
  changed();
}

async function keepTracing() {
  const pause = (time) => new Promise((resolve) => setTimeout(resolve, time));
  while (developer) {
    await pause(TRACE);
    if (chat.tasks.some(isDue)) await trace().catch(() => pause(FRESH)); // A later look may find the server again.
  }
}

async function submit() {
  await started; // The start shows the conversation of the URL, and ends another one.
  const written = text.value;
  if (!written.trim() && !attachments.files.length) return;
  complain('');
  try {
    const parts = [...(written.trim() ? [{ text: written }] : []), ...(await attachments.parts())];
    const attached = attachments.files;
    attachments.clear();
    fill('');
    text.focus();
    thread.scrollTop = thread.scrollHeight;
    const asking = chat.asking;
    try {
      await (asking && takesText(asking.question) ? chat.answer(asking, parts) : chat.send(parts));
    } catch (error) {
      if (!text.value) fill(written);
      attachments.add(attached);
      throw error;
    }
  } catch (error) {
    complain(messageOf(error));
  }
}

async function load() {
  notice('load', '');
  api.unlisted = null;
  try {
    const found = await chat.load();
    if (developer) await trace();
    if (!found) notice('load', 'The server has no tasks of this conversation. A server that keeps tasks in memory forgets them when it restarts.');
    await listEarlier();
    return true;
  } catch (error) {
    if (error.status === 401) denied();
    else notice('load', `The conversation cannot be loaded. ${messageOf(error)}`);
    return error.status !== 401;
  }
}

// The inbox is for callers whose tasks the server lists.
function startInbox() {
  const isStranger = anonymous === 'true' && !isLocal(location.hostname);
  const isKnown = !access.ways.length || access.ready || chat.tasks.some((task) => task.id);
  const linked = new URLSearchParams(location.search).get('task');
  byId('show-inbox').hidden = !inbox.shown && (isStranger || !(isKnown || access.hidden));
  if (isStranger && !inbox.shown) return;
  if (isKnown || (inbox.shown && access.hidden)) inbox.start(linked, !isStranger);
  else if (inbox.shown) denied();
}

function showCount({ count, refused }) {
  byId('count').textContent = count;
  byId('show-inbox').hidden = refused && !inbox.shown;
  document.title = count ? `(${count}) ${title}` : title;
}

// Show the inbox in the place of the conversation, also after a reload.
function showInbox(shown) {
  if (inbox.shown === shown) return;
  byId('main').classList.toggle('with-inbox', shown);
  byId('show-inbox').setAttribute('aria-pressed', String(shown));
  byId('skip').textContent = shown ? 'Skip to the inbox' : 'Skip to the message field';
  inbox.show(shown);
  changed();
}

function linkInbox() {
  const query = inbox.shown ? '?inbox' : '';
  history.replaceState(null, '', `${location.pathname}${query}${location.hash}`);
}

// Load what the caller may see.
async function enter() {
  if (await load()) startInbox();
}

// The other conversations of the caller, the newest first.
async function listEarlier() {
  if (anonymous === 'true' && !isLocal(location.hostname)) return; // The server lists no tasks for strangers.
  if (access.ways.length && !access.ready && !chat.tasks.length) return; // The server may want credentials.
  const conversations = new Map();
  try {
    for (const task of await api.newest()) conversations.set(task.contextId, [...(conversations.get(task.contextId) ?? []), task]);
  } catch (error) {
    if (error.status !== 403) throw error; // The server lists no tasks for this caller.
  }
  await released();
  conversations.delete(chat.context);
  earlier.replaceChildren(...drawEarlier(conversations, leaveSide));
}

// Return to the conversation.
function leaveSide() {
  leaveInbox();
  leaveNarrow();
}

function leaveInbox() {
  if (!inbox.shown) return;
  showInbox(false);
  linkInbox();
}

// On a narrow screen, the side covers the conversation.
function leaveNarrow() {
  if (matchMedia('(max-width: 900px)').matches) showSide('about', false);
}

function showSide(id, shown) {
  keepEnd(() => (byId(id).hidden = !shown));
  byId(id === 'about' ? 'show-about' : 'show-log').setAttribute('aria-expanded', String(shown));
  byId('layout').classList.toggle(`with-${id}`, shown);
  changed();
}

function isLocal(host) {
  return host === 'localhost' || host.endsWith('.localhost') || host === '[::1]' || /^127\./.test(host);
}

async function start() {
  switchTheme();
  for (const kind of ['pointerdown', 'pointermove', 'pointerup', 'pointercancel']) {
    addEventListener(kind, (event) => (pressed = event.buttons % 2 === 1), { capture: true });
  }
  byId('attach').append(icon('attach'));
  byId('send').append(icon('send'));
  byId('attach').addEventListener('click', () => byId('file').click());
  byId('file').addEventListener('change', (event) => {
    attachments.add(event.target.files);
    event.target.value = '';
  });
  takeDrops(byId('main'), (dropped) => attachments.add(dropped));
  byId('skip').addEventListener('click', (event) => {
    event.preventDefault();
    if (inbox.shown) inbox.focus();
    else text.focus();
  });
  byId('show-inbox').addEventListener('click', () => {
    showInbox(!inbox.shown);
    linkInbox();
    if (!inbox.started) startInbox();
    if (inbox.shown) {
      leaveNarrow();
      inbox.focus();
    } else text.focus();
  });
  byId('new').addEventListener('click', () => {
    leaveInbox();
    chat.begin();
    notice('load', '');
    listEarlier().catch(() => {}); // The list is drawn again with the next conversation.
    text.focus();
  });
  for (const [id, name] of [['about', 'show-about'], ['events', 'show-log']]) {
    byId(name).addEventListener('click', () => showSide(id, byId(id).hidden));
    showSide(id, id === 'about' && matchMedia('(min-width: 900px)').matches);
  }
  text.addEventListener('input', grow);
  text.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      composer.requestSubmit();
    }
  });
  composer.addEventListener('submit', (event) => {
    event.preventDefault();
    submit();
  });
  const query = new URLSearchParams(location.search);
  showInbox(query.has('task') || query.has('inbox'));
  text.focus(); // Now, not at the end: the user may be writing in another field by then.
  addEventListener('hashchange', () => {
    leaveInbox();
    load();
  });
  if (anonymous === 'true' && !isLocal(location.hostname)) {
    notice('anonymous', 'This server does not authenticate callers. Everyone who can reach the server shares one identity, and can read and cancel every task.');
  }
  if (developer) await trace().catch(() => (developer = false)); // Before the first message, so that the server keeps its steps.
  view.append(...drawView(developer));
  keepTracing();
  try {
    card = await api.card();
  } catch (error) {
    notice('card', `The agent card cannot be read. ${messageOf(error)}`);
    return;
  }
  title = `${plainName(card.name)} · Playground`;
  document.title = title;
  byId('name').textContent = plainName(card.name);
  byId('version').textContent = plainName(card.version);
  byId('version').hidden = false;
  access.setCard(card);
  chat.setCard(card);
  credentials.append(access.draw(() => {
    notice('denied', '');
    if (inbox.shown) leaveNarrow();
    enter();
  }) ?? '');
  facts.append(...drawCard(card).filter(Boolean));
  await enter();
  const declared = card.capabilities?.extensions?.find((extension) => extension.uri === SCHEMAS);
  const schema = declared?.params?.inputSchema;
  if (schema) {
    byId('input').append(drawInput(schema, chat.send));
    byId('input').hidden = false;
    byId('input').open = true;
  }
}

const started = start();
