// Draws Markdown of the model, which is hostile input: only a few tags and attributes remain.

import { Marked } from './vendor/marked.js';
import './vendor/purify.js';
import { el } from './dom.js';

const { DOMPurify } = globalThis;
const escapes = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
const escaped = (text) => text.replace(/[&<>"]/g, (character) => escapes[character]);

const marked = new Marked({
  gfm: true,
  breaks: true,
  renderer: {
    // HTML is shown as text, but for a few tags without attributes.
    html({ text }) {
      return escaped(text).replace(/&lt;(\/?(?:b|br|em|i|kbd|strong|sub|sup))\s*\/?&gt;/gi, '<$1>');
    },
    // Headings of the page end at level 2. The text's own levels could leave some out.
    heading({ tokens }) {
      return `<h3>${this.parser.parseInline(tokens)}</h3>`;
    },
    // An image would be loaded from another host.
    image({ href, text }) {
      return `<a href="${escaped(href)}">${escaped(text || 'image')}</a>`;
    },
    checkbox({ checked }) {
      return checked ? '☑ ' : '☐ ';
    },
  },
});

const RULES = {
  ALLOWED_TAGS: [
    'a', 'b', 'blockquote', 'br', 'code', 'del', 'em', 'h3', 'hr', 'i', 'kbd', 'li', 'ol', 'p', 'pre', 's', 'strong', 'sub', 'sup',
    'table', 'tbody', 'td', 'th', 'thead', 'tr', 'ul',
  ],
  ALLOWED_ATTR: ['align', 'href', 'start'],
  ADD_URI_SAFE_ATTR: ['align', 'start'],
  ALLOWED_URI_REGEXP: /^https?:\/\//i,
  ALLOW_ARIA_ATTR: false,
  ALLOW_DATA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

DOMPurify.addHook('afterSanitizeAttributes', (node) => {
  if (node.nodeName === 'A' && node.hasAttribute('href')) {
    node.setAttribute('target', '_blank');
    node.setAttribute('rel', 'noopener noreferrer');
  }
});

// Return the drawn text as a fragment.
export function drawMarkdown(text) {
  const fragment = DOMPurify.sanitize(marked.parse(text), RULES);
  for (const wide of fragment.querySelectorAll('pre, table')) {
    const box = el('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': wide.nodeName === 'PRE' ? 'Code' : 'Table' });
    wide.replaceWith(box);
    box.append(wide);
  }
  return fragment;
}
