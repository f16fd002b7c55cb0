// Draws the parts of messages and artifacts: text, files and data.

import { bytes, el, icon, link, plainName } from './dom.js';
import { drawMarkdown } from './markdown.js';

const ROWS = 200; // More rows are only in the JSON.
const COLORED = 12_000; // characters of code with colors in a message

// whole: no text follows, so code gets colors only once.
export function drawParts(parts, { markdown = false, whole = true } = {}) {
  const budget = { left: whole ? COLORED : 0 };
  return parts.map((part) => {
    if (part.text !== undefined) return drawText(part.text, markdown, budget);
    if (part.raw !== undefined) return drawFile(part);
    if (part.url !== undefined) return el('p', { class: 'file' }, icon('file'), link(part.filename || part.url, part.url));
    return drawData(part.data, part.metadata);
  });
}

function drawText(text, markdown, budget) {
  const box = el('div', { class: markdown ? 'prose' : 'plain' });
  box.append(markdown ? drawMarkdown(text, budget) : text);
  return box;
}

const IMAGES = ['image/png', 'image/jpeg', 'image/webp', 'image/gif'];
const octetsOf = (raw) => Uint8Array.from(atob(raw), (character) => character.charCodeAt(0));

// Return a picture of a blob of one of the types of images, which run no code; null for other types.
export function drawImage(blob, name) {
  if (!IMAGES.includes(blob.type)) return null;
  const src = URL.createObjectURL(blob);
  const image = el('img', { class: 'picture', src, alt: name });
  const free = () => URL.revokeObjectURL(src);
  image.addEventListener('load', free);
  image.addEventListener('error', () => {
    free();
    image.remove();
  });
  return image;
}

// Images are shown. Other files are only ever downloaded: as octets, the browser neither shows nor runs them.
function drawFile({ raw, filename, mediaType }) {
  const name = plainName(filename || 'file');
  const size = Math.floor((raw.length * 3) / 4) - (raw.endsWith('==') ? 2 : raw.endsWith('=') ? 1 : 0);
  const save = () => {
    const href = URL.createObjectURL(new Blob([octetsOf(raw)], { type: 'application/octet-stream' }));
    el('a', { href, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(href), 60_000);
  };
  const download = el(
    'button',
    { type: 'button', class: 'file', onclick: save, title: `Download ${name}` },
    icon('file'),
    el('span', { class: 'filename' }, name),
    el('small', {}, [mediaType && plainName(mediaType), bytes(size)].filter(Boolean).join(', ')),
  );
  const image = IMAGES.includes(mediaType) ? drawImage(new Blob([octetsOf(raw)], { type: mediaType }), name) : null;
  return image ? el('div', { class: 'shown' }, image, download) : download;
}

const json = (value) => JSON.stringify(value, null, 2);

export function drawJson(value, label = 'JSON') {
  return el('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': label }, el('pre', {}, json(value) ?? 'null'));
}

// Data as a table, with a switch to its JSON.
export function drawData(data, metadata) {
  const wrapped = isObject(data) && Object.keys(data).length === 1 && 'result' in data;
  const shown = wrapped ? data.result : data;
  const table = drawTable(shown, plainName(metadata?.python_type ?? 'Data'));
  if (table === null) return drawJson(data, 'Data as JSON');
  const code = drawJson(data, 'Data as JSON');
  code.hidden = true;
  const toggle = el('button', { type: 'button', class: 'quiet small', 'aria-pressed': 'false' }, 'JSON');
  toggle.addEventListener('click', () => {
    code.hidden = !code.hidden;
    table.hidden = !code.hidden;
    toggle.setAttribute('aria-pressed', String(!code.hidden));
  });
  return el('div', { class: 'data' }, toggle, table, code);
}

const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);
const isPlain = (value) => typeof value !== 'object' || value === null;
const cell = (value) => (isPlain(value) ? String(value ?? '') : json(value));

function drawTable(value, label) {
  let head = null;
  let rows;
  if (Array.isArray(value) && value.length && value.every(isObject)) {
    const names = [...new Set(value.slice(0, ROWS).flatMap(Object.keys))];
    head = el('thead', {}, el('tr', {}, names.map((name) => el('th', { scope: 'col' }, plainName(name)))));
    rows = value.slice(0, ROWS).map((row) => el('tr', {}, names.map((name) => drawCell(row[name]))));
  } else if (isObject(value) && Object.keys(value).length) {
    rows = Object.entries(value).map(([name, member]) => el('tr', {}, el('th', { scope: 'row' }, plainName(name)), drawCell(member)));
  } else return null;
  const table = el('table', {}, head, el('tbody', {}, rows));
  return el('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': label }, table);
}

function drawCell(value) {
  if (Array.isArray(value) && value.every(isPlain)) return el('td', {}, value.map(cell).join(', '));
  return el('td', {}, isPlain(value) ? cell(value) : el('pre', {}, cell(value)));
}
