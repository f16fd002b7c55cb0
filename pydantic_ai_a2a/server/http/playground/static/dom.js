// Builds elements. Text is always a text node: no string of an agent becomes markup here.

const SVG = 'http://www.w3.org/2000/svg';
const ICONS = {
  attach: 'M13.5 7.5 8 13a3 3 0 0 1-4.3-4.300l6-6a2 2 0 0 1 2.9 2.900l-5.9 5.900a1 1 0 0 1-1.5-1.400L10.5 4.8',
  send: 'M8 13.500V3M3.5 7.3 8 2.800l4.5 4.5',
  theme: 'M8 2a6 6 0 1 0 0 12zm0 0a6 6 0 0 1 0 12',
  close: 'm4 4 8 8m0-8-8 8',
  file: 'M4 1.800h5l3.2 3.200v9.200H4zM9 1.800V5h3.2',
  tool: 'M9.8 4.300a3 3 0 0 1 3.9-2L11.9 4v1.600h1.600l1.6-1.700a3 3 0 0 1-4 3.800l-5.6 5.700a1.4 1.4 0 0 1-2-2l5.7-5.600a3 3 0 0 1 .6-1.5',
  thought: 'M8 1.800a4.3 4.3 0 0 0-2.5 7.800c.4.3.6.7.6 1.200v.500h3.800v-.5c0-.5.2-.9.6-1.200A4.3 4.3 0 0 0 8 1.800M6.4 13.800h3.2',
};

export const byId = (id) => document.getElementById(id);

export function el(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, '');
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child != null).map((child) => (typeof child === 'string' ? calm(child) : child)));
  return node;
}

// A text with at most 100 accents on a letter: a browser takes time that grows with the square of their number.
export const calm = (text) => text.replace(/\p{M}{100}/gu, '$&\u25cc');

// A text as children of an element, a long one in pieces: the browser lays out only those that are on the screen.
export function pieces(text) {
  const parts = text.length > 20_000 ? text.match(/(?:[^\n]*\n){1,500}|[^\n]+/g) : [];
  return parts.length > 1 ? parts.map((part) => el('span', { class: 'piece' }, part)) : text;
}

export function icon(name) {
  const svg = document.createElementNS(SVG, 'svg');
  const path = document.createElementNS(SVG, 'path');
  svg.setAttribute('viewBox', '0 0 16 16');
  svg.setAttribute('aria-hidden', 'true');
  path.setAttribute('d', ICONS[name]);
  svg.append(path);
  return svg;
}

export const button = (label, onclick, kind = '') => el('button', { type: 'button', class: kind, onclick }, label);

// A button that copies a text. Browsers let only pages of secure origins write the clipboard.
export function copyButton(text, label = 'Copy') {
  if (!navigator.clipboard) return null;
  const copy = button(label, async () => {
    await navigator.clipboard.writeText(text());
    copy.textContent = 'Copied';
    setTimeout(() => (copy.textContent = label), 1_500);
  }, 'quiet small');
  return copy;
}

export const newId = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');

// A name on the screen: characters that change the direction of text, or are invisible, could fake another name.
export const plainName = (name) => String(name).replace(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, '');

// An absolute http(s) URL, or null.
export function webUrl(text) {
  try {
    const url = new URL(text);
    return url.protocol === 'https:' || url.protocol === 'http:' ? url.href : null;
  } catch {
    return null;
  }
}

export function link(text, target) {
  const href = webUrl(target);
  return href === null ? plainName(text) : el('a', { href, target: '_blank', rel: 'noopener noreferrer' }, plainName(text));
}

export function bytes(count) {
  const steps = [[1e6, 'MB'], [1e3, 'kB']];
  for (const [size, unit] of steps) if (count >= size) return `${+(count / size).toFixed(1)} ${unit}`;
  return `${count} bytes`;
}
