// Reads and writes JSON as it stands, at any depth: numbers keep their digits, and objects the order of their members.

const ORDER = Symbol('order'); // the names of an object with names such as "10", which JavaScript would put first
const INDEX = /^\d+$/;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const WORDS = [['true', true], ['false', false], ['null', null]];
// Characters that a page does not show, or shows in another place. Emoji and many languages need the joiners.
const UNSEEN = /(?![\t\n\u200c\u200d\u{e0020}-\u{e007f}])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;
const ACCENTS = /\p{M}{100,}/gu; // as calm() of dom.js cuts
const INDENTED = 40; // Deeper members stand on one line: the indentation would grow with the square of the depth.

// A number that JavaScript would write in another way, such as 1.0 or 738529527931269425.
export class Numeral {
  constructor(text) {
    this.text = text;
  }

  toString() {
    return this.text;
  }
}

export const isNumber = (value) => typeof value === 'number' || value instanceof Numeral;
export const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Numeral);

// Return a member of an object; undefined for none, also for names such as "constructor".
export const own = (object, name) => (isObject(object) && Object.hasOwn(object, name) ? object[name] : undefined);

export const namesOf = (object) => object[ORDER] ?? Object.keys(object);

// Return an object of [name, value] pairs, in their order.
export function fromPairs(pairs) {
  const object = Object.fromEntries(pairs);
  const names = Object.keys(object);
  if (names.some((name) => INDEX.test(name))) Object.defineProperty(object, ORDER, { value: [...new Set(pairs.map(([name]) => name))] });
  return object;
}

// Whether a text looks as it is. A text with other characters is shown as JSON, which escapes them.
export const isVisible = (text) => text.search(UNSEEN) < 0 && text.search(ACCENTS) < 0;
export const visible = (text) => (isVisible(text) ? text : writeText(text));

// Return the value of a JSON text. Throws a SyntaxError for another text.
export function readJson(text) {
  const around = []; // the objects and lists that have begun
  let at = 0;
  const fault = () => new SyntaxError(`There is no JSON at character ${at}.`);
  const take = (character) => {
    while (' \t\n\r'.includes(text[at])) at++;
    if (text[at] !== character) return false;
    at++;
    return true;
  };
  const readText = () => {
    const start = at - 1;
    do at = text.indexOf('"', at) + 1;
    while (at && isEscaped(text, at - 1));
    if (!at) throw new SyntaxError('A text of the JSON has no end.');
    return JSON.parse(text.slice(start, at));
  };
  const readName = () => {
    if (!take('"')) throw fault();
    const name = readText();
    if (!take(':')) throw fault();
    return name;
  };
  const readPlain = () => {
    if (take('"')) return readText();
    NUMBER.lastIndex = at;
    const number = NUMBER.exec(text)?.[0];
    if (number !== undefined) {
      at += number.length;
      return String(Number(number)) === number ? Number(number) : new Numeral(number);
    }
    const word = WORDS.find(([name]) => text.startsWith(name, at));
    if (!word) throw fault();
    at += word[0].length;
    return word[1];
  };
  for (;;) {
    let value;
    if (take('[')) {
      if (!take(']')) {
        around.push({ end: ']', items: [] });
        continue;
      }
      value = [];
    } else if (take('{')) {
      if (!take('}')) {
        around.push({ end: '}', items: [], name: readName() });
        continue;
      }
      value = {};
    } else value = readPlain();
    // The value may be the last one of the objects and lists around it.
    for (;;) {
      const outer = around.at(-1);
      if (!outer) {
        take(null); // the space at the end
        if (at < text.length) throw fault();
        return value;
      }
      const isList = outer.end === ']';
      outer.items.push(isList ? value : [outer.name, value]);
      if (take(',')) {
        if (!isList) outer.name = readName();
        break;
      }
      if (!take(outer.end)) throw fault();
      around.pop();
      value = isList ? outer.items : fromPairs(outer.items);
    }
  }
}

function isEscaped(text, at) {
  let start = at;
  while (text[start - 1] === '\\') start--;
  return (at - start) % 2 === 1;
}

// Write a value as JSON. lines: each member has a line. longest: characters of a text, beyond which it is cut.
export function writeJson(value, { lines = false, longest = Infinity } = {}) {
  const written = [];
  const around = []; // the objects and lists that have begun, with what is left of their members
  const line = () => (lines && around.length <= INDENTED ? `\n${'  '.repeat(around.length)}` : '');
  const begin = (item) => {
    const isList = Array.isArray(item);
    if (!isList && !isObject(item)) {
      written.push(writePlain(item, longest));
      return;
    }
    const names = isList ? null : namesOf(item).filter((name) => item[name] !== undefined);
    const ends = isList ? '[]' : '{}';
    if (!(names ?? item).length) written.push(ends);
    else {
      written.push(ends[0]);
      around.push({ item, names, at: 0, end: ends[1] });
    }
  };
  begin(value);
  while (around.length) {
    const { item, names, at, end } = around.at(-1);
    if (at === (names ?? item).length) {
      around.pop();
      written.push(line(), end);
      continue;
    }
    around.at(-1).at++;
    written.push(at ? ',' : '', line());
    if (names) written.push(writeText(names[at]), lines ? ': ' : ':');
    begin(item[names ? names[at] : at]);
  }
  return written.join('');
}

function writePlain(value, longest) {
  if (value instanceof Numeral) return value.text;
  if (typeof value !== 'string') return JSON.stringify(value) ?? 'null';
  return writeText(value.length > longest ? `${value.slice(0, 100)}… (${value.length} characters)` : value);
}

const escaped = (character) => character.split('').map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`).join('');
const writeText = (text) => JSON.stringify(text).replace(UNSEEN, escaped).replace(ACCENTS, escaped);
