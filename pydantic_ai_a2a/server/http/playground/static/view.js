// How the page looks: light or dark, with or without the steps of tasks. The browser remembers both.

import { byId, el, icon } from './dom.js';

const STEPS = 'playground-steps';
const THEME = 'playground-theme';

// A browser that blocks the data of sites throws; the page then remembers nothing.
function remembered(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

function remember(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // The setting lasts until the page is left.
  }
}

// Let a button switch between light and dark, beginning with the setting of the system.
export function switchTheme() {
  const root = document.documentElement;
  const theme = byId('theme');
  theme.append(icon('theme'));
  const show = (dark) => {
    root.dataset.theme = dark ? 'dark' : 'light';
    theme.setAttribute('aria-pressed', String(dark));
  };
  const chosen = remembered(THEME);
  show(chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches);
  theme.addEventListener('click', () => {
    show(root.dataset.theme !== 'dark');
    remember(THEME, root.dataset.theme);
  });
}

// developer: the server tells this page the steps of all tasks.
export function drawView(developer) {
  const box = el('input', { type: 'checkbox', id: 'steps', role: 'switch', 'aria-describedby': 'steps-hint', checked: remembered(STEPS) !== 'off' });
  const show = () => document.documentElement.classList.toggle('without-steps', !box.checked);
  box.addEventListener('change', () => {
    remember(STEPS, box.checked ? 'on' : 'off');
    show();
  });
  show();
  const setting = el('code', {}, 'Results(progress=', el('wbr'), 'Progress(tools=True, thinking=True))');
  const own = developer ? 'You see them with the results of the tools, because the page and the server run on one machine, without authentication. Other' : 'The';
  return [
    el('h2', {}, 'Steps'),
    el('div', { class: 'field inline' }, box, el('label', { for: 'steps' }, 'Show tool calls and thoughts')),
    el('p', { class: 'hint', id: 'steps-hint' }, own, ' clients see tool calls and thoughts only with the setting ', setting, '.'),
  ];
}
