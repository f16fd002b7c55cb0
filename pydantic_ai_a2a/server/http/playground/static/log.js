// The list of requests, answers and events, with their JSON.

import { button, el } from './dom.js';
import { drawJson } from './parts.js';

const ROWS = 1_000;
const LONGEST = 2_000; // characters of a text: files are shown by their first characters
const SIGNS = { request: '→', answer: '←', event: '·' };

export class Log {
  constructor(element, changed) {
    this.changed = changed;
    this.fresh = [];
    this.count = 0;
    this.rows = el('ol', { class: 'rows' });
    this.total = el('span', { class: 'hint' }, 'Nothing yet.');
    element.append(el('div', { class: 'head' }, el('h2', {}, 'Events'), this.total, button('Clear', () => this.clear(), 'quiet small')), this.rows);
  }

  add(kind, label, body) {
    this.fresh.push({ kind, label, body, time: new Date() });
    if (this.fresh.length > ROWS) this.fresh.shift();
    this.count++;
    this.changed();
  }

  clear() {
    this.fresh = [];
    this.count = 0;
    this.rows.replaceChildren();
    this.total.textContent = 'Nothing yet.';
  }

  draw() {
    if (!this.fresh.length) return;
    this.rows.append(...this.fresh.map(drawRow));
    this.fresh = [];
    while (this.rows.childElementCount > ROWS) this.rows.firstChild.remove();
    this.total.textContent = this.count > ROWS ? `the last ${ROWS} of ${this.count}` : String(this.count);
  }
}

function drawRow({ kind, label, body, time }) {
  const summary = el('summary', {}, el('span', { class: 'sign', 'aria-hidden': 'true' }, SIGNS[kind]), el('span', { class: 'what' }, label), el('time', {}, time.toLocaleTimeString()));
  const details = el('details', { class: kind }, summary);
  details.addEventListener('toggle', () => {
    if (details.open && details.childElementCount === 1) {
      details.append(body === undefined ? el('p', { class: 'hint' }, 'No body.') : typeof body === 'string' ? el('pre', {}, body) : drawJson(body, 'JSON', LONGEST));
    }
  });
  return el('li', {}, details);
}
