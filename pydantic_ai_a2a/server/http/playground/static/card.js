// The agent card at the side, and the page of an empty conversation.

import { button, el, link, plainName } from './dom.js';
import { drawJson } from './parts.js';
import { titleOf } from './task.js';

const list = (title, items) => (items.length ? [el('h2', {}, title), el('ul', { class: 'list' }, items)] : []);

export function drawCard(card) {
  const { capabilities = {}, skills = [], provider } = card;
  const can = [
    capabilities.streaming && 'streaming',
    capabilities.pushNotifications && 'webhooks',
    capabilities.extendedAgentCard && 'extended card',
  ].filter(Boolean);
  return [
    el('p', { class: 'about' }, card.description),
    provider ? el('p', { class: 'hint' }, 'By ', link(provider.organization, provider.url)) : null,
    card.documentationUrl ? el('p', { class: 'hint' }, link('Documentation', card.documentationUrl)) : null,
    ...list('Skills', skills.map(drawSkill)),
    ...list('Abilities', can.map((name) => el('li', {}, name))),
    el('details', { class: 'raw' }, el('summary', {}, 'Media types'), el('p', { class: 'hint' }, 'In: ', modes(card.defaultInputModes)), el('p', { class: 'hint' }, 'Out: ', modes(card.defaultOutputModes))),
    el('details', { class: 'raw' }, el('summary', {}, 'Card as JSON'), drawJson(card, 'Card as JSON')),
  ];
}

const modes = (names) => plainName((names ?? []).join(', ') || 'any');

function drawSkill({ name, description, tags = [] }) {
  return el('li', {}, el('strong', {}, plainName(name)), el('p', { class: 'hint' }, description), el('p', { class: 'tags' }, tags.map((tag) => el('span', { class: 'chip' }, plainName(tag)))));
}

export function drawWelcome(card, fill) {
  const examples = (card.skills ?? []).flatMap((skill) => skill.examples ?? []).slice(0, 4);
  return el(
    'div',
    { class: 'welcome' },
    el('p', { class: 'title' }, plainName(card.name)),
    el('p', { class: 'faint' }, card.description),
    examples.length ? el('div', { class: 'examples' }, examples.map((text) => button(text, () => fill(text)))) : null,
  );
}

export function drawTasks(tasks, leave) {
  const items = tasks.filter((task) => task.id).map((task) => {
    const show = () => {
      leave();
      const turn = document.getElementById(`task-${task.id}`);
      turn?.scrollIntoView({ block: 'start' });
      turn?.querySelector('button, summary, [tabindex]')?.focus({ preventScroll: true });
    };
    const state = task.state.toLowerCase().replace('_', ' ');
    const badge = el('small', { class: `badge ${task.state}` }, state);
    return el('li', {}, el('button', { type: 'button', class: 'quiet task', title: task.id, onclick: show }, el('span', { class: 'filename' }, plainName(task.title || 'Task')), badge));
  });
  return list('Tasks', items);
}

// conversations: the tasks of each conversation by its id, the newest task first.
export function drawEarlier(conversations, leave) {
  const items = [...conversations].map(([context, tasks]) => {
    const title = plainName(titleOf(tasks.at(-1).history ?? []) || 'Conversation');
    const href = `#${new URLSearchParams({ context })}`;
    return el('li', {}, el('a', { class: 'task', href, title, onclick: leave }, el('span', { class: 'filename' }, title), el('small', {}, el('time', {}, new Date(tasks[0].status.timestamp).toLocaleString([], { dateStyle: 'short', timeStyle: 'short' })))));
  });
  return list('Earlier conversations', items);
}
