// Draws the parts of messages and artifacts: text, files and data.

import { bytes, calm, el, icon, link, pieces, plainName } from './dom.js';
import { isObject, namesOf, own, visible, writeJson } from './json.js';
import { drawMarkdown } from './markdown.js';

const ROWS = 200; // More rows are only in the JSON.
const COLUMNS = 50;
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
  const drawn = markdown ? drawMarkdown(calm(text), budget) : text;
  return typeof drawn === 'string' ? el('div', { class: 'plain' }, pieces(drawn)) : el('div', { class: 'prose' }, drawn);
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

// longest: characters of a text, beyond which it is cut.
export function drawJson(value, label = 'JSON', longest = Infinity) {
  return el('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': label }, el('pre', {}, pieces(writeJson(value, { lines: true, longest }))));
}

// Data as a table, with a switch to its JSON.
export function drawData(data, metadata) {
  const wrapped = isObject(data) && Object.keys(data).length === 1 && 'result' in data;
  return drawSwitch(data, wrapped ? data.result : data, plainName(metadata?.python_type ?? 'Data'), '');
}

// People decide about arguments, so null is no empty text there.
export const drawArguments = (args) => drawSwitch(args, args, 'Arguments', 'null');

function drawSwitch(data, shown, label, none) {
  const table = drawTable(shown, label, none);
  const code = drawJson(data, 'Data as JSON');
  if (table === null) return code;
  code.hidden = true;
  const toggle = el('button', { type: 'button', class: 'quiet small', 'aria-pressed': 'false' }, 'JSON');
  toggle.addEventListener('click', () => {
    code.hidden = !code.hidden;
    table.hidden = !code.hidden;
    toggle.setAttribute('aria-pressed', String(!code.hidden));
  });
  return el('div', { class: 'data' }, toggle, table, code);
}

const isPlain = (value) => !isObject(value) && !Array.isArray(value);
const cell = (value, none) => (typeof value === 'string' ? visible(value) : value === null ? none : writeJson(value, { lines: true }));

// Return null for data that no table shows, or only one with too many cells. none: what stands for null.
function drawTable(value, label, none) {
  let head = null;
  let rows;
  if (Array.isArray(value) && value.length && value.every(isObject)) {
    const first = value.slice(0, ROWS);
    const names = [...new Set(first.flatMap(namesOf))];
    if (names.length > COLUMNS) return null;
    head = el('thead', {}, el('tr', {}, names.map((name) => el('th', { scope: 'col' }, visible(name)))));
    rows = first.map((row) => el('tr', {}, names.map((name) => drawCell(own(row, name), none))));
  } else if (isObject(value) && Object.keys(value).length && Object.keys(value).length <= ROWS) {
    rows = namesOf(value).map((name) => el('tr', {}, el('th', { scope: 'row' }, visible(name)), drawCell(value[name], none)));
  } else return null;
  const table = el('table', {}, head, el('tbody', {}, rows));
  return el('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': label }, table);
}

function drawCell(value, none) {
  if (value === undefined) return el('td', {});
  if (Array.isArray(value) && value.every(isPlain)) return el('td', {}, value.map((item) => cell(item, none)).join(', '));
  return el('td', {}, isPlain(value) ? cell(value, none) : el('pre', {}, cell(value)));
}
