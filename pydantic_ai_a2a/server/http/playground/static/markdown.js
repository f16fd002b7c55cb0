// Draws Markdown of the model, which is hostile input: only a few tags and attributes remain.

import { Lexer, Marked } from './vendor/marked.js';
import './vendor/purify.js';
import { colored } from './code.js';
import { copyButton, el, plainName } from './dom.js';

const { DOMPurify } = globalThis;
const escapes = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
const escaped = (text) => text.replace(/[&<>"]/g, (character) => escapes[character]);

const LONGEST = 4_000; // characters of a code block with colors: hostile code takes time that grows with the square

const LONGEST_TEXT = 100_000; // characters of a text with Markdown
const DEEPEST = 20; // quotes, lists and emphasis in each other
const STEPS = 100_000_000; // about half a second: some constructs take time that grows with the square of their length

let languages = []; // of the code blocks of a text, in their order
let steps = 0; // that are left for a text

function spend(count) {
  steps -= count;
  if (steps < 0) throw new RangeError('The text takes too long.');
}

// Stops at a text that is nested too deeply, or takes too long.
class BoundedLexer extends Lexer {
  #depth = 0;

  blockTokens(...given) {
    return this.#inner(() => super.blockTokens(...given));
  }

  inlineTokens(text, ...given) {
    spend(text.length ** 2 / 10);
    return this.#inner(() => super.inlineTokens(text, ...given));
  }

  // Each paragraph, and each cell of a table: a short row has cells for all columns.
  inline(...given) {
    spend(2_000);
    return super.inline(...given);
  }

  #inner(read) {
    if (++this.#depth > DEEPEST) throw new RangeError('The text is nested too deeply.');
    const tokens = read();
    this.#depth--;
    return tokens;
  }
}

const marked = new Marked({
  gfm: true,
  breaks: true,
  hooks: {
    provideLexer: () => (text, options) => new BoundedLexer(options).lex(text),
  },
  tokenizer: {
    // The first that the lexer tries at each place.
    escape(text) {
      spend(/^[*_~]/.test(text) ? 25 * text.length : text.length);
      return false;
    },
  },
  renderer: {
    // HTML is shown as text, but for a few tags without attributes.
    html({ text }) {
      spend(100_000); // A browser takes long for many tags without an end.
      return escaped(text).replace(/&lt;(\/?(?:b|br|em|i|kbd|strong|sub|sup))\s*\/?&gt;/gi, '<$1>');
    },
    code({ text, lang }) {
      languages.push((lang ?? '').split(/[\s{]/)[0].toLowerCase());
      return `<pre><code>${escaped(text)}</code></pre>`;
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

const scroll = (wide, label) => el('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': label }, wide);

// Return the drawn text as a fragment; the text itself if it is too long, too deep, or takes too long. budget.left:
// characters of code that may still get colors.
export function drawMarkdown(text, budget) {
  if (text.length > LONGEST_TEXT) return text;
  try {
    return draw(text, budget);
  } catch {
    return text;
  }
}

function draw(text, budget) {
  languages = [];
  steps = STEPS;
  const fragment = DOMPurify.sanitize(marked.parse(text), RULES);
  const known = languages;
  fragment.querySelectorAll('pre').forEach((pre, n) => {
    const code = pre.textContent;
    const box = el('div', { class: 'code-box' }, el('div', { class: 'code-head' }, el('small', {}, plainName(known[n])), copyButton(() => code)));
    pre.replaceWith(box);
    const isColored = code.length <= Math.min(LONGEST, budget.left);
    if (isColored) budget.left -= code.length;
    pre.firstChild.replaceChildren(isColored ? colored(code, known[n]) : code);
    box.append(scroll(pre, 'Code'));
  });
  for (const table of fragment.querySelectorAll('table')) {
    const place = el('div', {});
    table.replaceWith(place);
    place.replaceWith(scroll(table, 'Table'));
  }
  return fragment;
}
