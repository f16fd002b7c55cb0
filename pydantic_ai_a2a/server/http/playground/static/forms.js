// A form made of a JSON Schema. Values that no field shows as they are stand in it as JSON.
//
// A form either changes a value, such as the arguments of a call, or is filled in. What nobody changes is read as it
// was given: the same object, with every number, null and line break.

import { button, el, newId, plainName } from './dom.js';
import { Numeral, fromPairs, isNumber, isObject, isVisible, namesOf, own, readJson, visible, writeJson } from './json.js';

const DEEPEST = 4;
const MANY = 300; // fields of a form: a schema that refers to itself in several ways would have millions
const TYPES = { date: 'date', time: 'time', email: 'email', uri: 'url' };
const SHAPES = { date: /^\d{4}-\d\d-\d\d$/, time: /^\d\d:\d\d/, 'date-time': /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d/ };
const NOUNS = { date: 'a date', time: 'a time', 'date-time': 'a date and a time', 'datetime-local': 'a date and a time', email: 'an email address', url: 'a URL' };
const ZONE = /^(?:Z|[+-]\d\d:?\d\d)?$/i;

// What a form lacks before it is sent, in the words of the server's own complaints.
export class FormError extends Error {
  constructor(violations) {
    super(violations.map(({ description }) => description).join('\n'));
    this.violations = violations;
  }
}

const isSame = (one, other) => one === other || writeJson(one) === writeJson(other);

export class SchemaForm {
  // value: what the form changes; undefined for a form that is filled in. path: the place of the value in the answer,
  // by which the server names faults.
  constructor(schema, defs, value, path, label) {
    this.defs = defs ?? {};
    this.isNew = value === undefined;
    this.fields = new Map();
    this.faults = [];
    try {
      this.root = this.#make(schema, value, path, label, true, 0);
    } catch {
      // The schema is none, or is nested too deeply.
      this.fields.clear();
      this.root = this.#json({ schema: {}, value, path, label });
    }
    this.element = this.root.element;
  }

  // Return the value: the given one if nobody has changed it. Throws what is missing or malformed.
  read() {
    this.faults = [];
    const value = this.root.read();
    if (this.faults.length) throw new FormError(this.faults);
    return value;
  }

  // Show complaints at their fields. Returns the complaints that belong to no field.
  complain(violations) {
    for (const field of this.fields.values()) field.complain('');
    const rest = violations.filter(({ field, description }) => {
      const path = [...this.fields.keys()].filter((own) => field === own || field.startsWith(`${own}.`) || field.startsWith(`${own}[`));
      const longest = path.sort((a, b) => b.length - a.length)[0];
      if (longest === undefined) return true;
      const inner = field.slice(longest.length).replace(/^\./, '');
      this.fields.get(longest).complain(inner ? `${inner} ${description}` : description);
      return false;
    });
    [...this.fields.values()].find((field) => field.faulty)?.input.focus();
    return rest;
  }

  #fault(path, description) {
    this.faults.push({ field: path, description });
  }

  // Return an element and a function that reads it.
  #make(given, value, path, label, required, depth) {
    const [schema, nullable] = this.#plain(given);
    const initial = value === undefined && this.isNew ? (schema.default ?? undefined) : value;
    const node = { schema, nullable, value: initial, path, label: plainName(schema.title ?? label), required, depth, isNew: this.isNew };
    const fits = (isFitting) => initial === undefined || (initial === null && nullable) || isFitting(initial);
    if ('const' in schema && initial === undefined) return { element: null, read: () => (node.isNew ? schema.const : undefined) };
    const choices = 'const' in schema ? [schema.const] : schema.enum;
    if (Array.isArray(choices)) return fits((one) => choices.some((choice) => isSame(choice, one))) ? this.#select(node, choices) : this.#json(node);
    if (schema.type === 'boolean' && fits((one) => typeof one === 'boolean')) return this.#boolean(node);
    if (schema.type === 'string' && fits((one) => typeof one === 'string' && isVisible(one))) return this.#text(node);
    if ((schema.type === 'number' || schema.type === 'integer') && fits(isNumber)) return this.#number(node);
    if (schema.decimal && fits((one) => isNumber(one) || typeof one === 'string')) return this.#decimal(node);
    const room = depth < DEEPEST ? MANY - this.fields.size : 0;
    if (schema.type === 'object' && (initial === undefined || isObject(initial))) {
      const names = [...new Set([...namesOf(initial ?? {}), ...namesOf(schema.properties ?? {})])];
      if (names.length && names.length <= room) return this.#object(node, names);
    }
    if (schema.type === 'array' && schema.items && !schema.prefixItems && (initial === undefined || (Array.isArray(initial) && initial.length <= room)) && room > 0) {
      return this.#list(node);
    }
    return this.#json(node);
  }

  // Return a schema without references, and whether the value may be null.
  #plain(given) {
    let schema = isObject(given) ? given : {};
    let nullable = false;
    for (let n = 0; n < 10; n++) {
      const { $ref, anyOf, ...others } = schema;
      if (typeof $ref === 'string') schema = { ...own(this.defs, $ref.replace('#/$defs/', '')), ...(anyOf && { anyOf }), ...others };
      else if (!Array.isArray(anyOf)) break;
      else {
        const choices = anyOf.filter((choice) => choice.type !== 'null');
        if (choices.length < anyOf.length) nullable = true;
        const [number, text] = choices;
        // As text, a decimal number keeps its digits.
        const isDecimal = choices.length === 2 && number.type === 'number' && text.type === 'string' && !text.format;
        if (isDecimal) schema = { ...others, decimal: text.pattern ? 'text' : 'any' };
        if (choices.length !== 1) break;
        schema = { ...choices[0], ...others };
      }
    }
    return [schema, nullable];
  }

  // Return what an empty field stands for. Notes that it must have a value.
  #nothing({ nullable, required, value, path }) {
    if (nullable && (required || value !== undefined)) return null;
    if (required) this.#fault(path, 'is required');
    return undefined;
  }

  // What stands in an empty field: null, or the value that the server takes for a member that is left out.
  #hint({ schema, nullable, required, value }) {
    if (nullable && (required || value !== undefined)) return 'null';
    return required || schema.default === undefined ? null : `without a value: ${writeJson(schema.default, { longest: 40 })}`;
  }

  // A label, an input and its complaint. The input may be a group of fields.
  #field(input, { schema, nullable, required, path, label }, read, { inline = false, group = false, beside = null } = {}) {
    const id = newId();
    const complaint = el('p', { class: 'complaint', id: `${id}-complaint` });
    const hint = schema.description ? el('p', { class: 'hint', id: `${id}-hint` }, plainName(schema.description)) : null;
    input.id = id;
    input.setAttribute('aria-describedby', `${id}-complaint${hint ? ` ${id}-hint` : ''}`);
    const name = [label, !required || nullable ? el('small', {}, ' optional') : null];
    const title = group ? null : el('label', { for: id }, name);
    if (group) input.prepend(el('legend', {}, name));
    const control = beside ? el('div', { class: 'moment' }, input, beside) : input;
    const element = el('div', { class: inline ? 'field inline' : 'field' }, inline ? [control, title] : [title, control], hint, complaint);
    const field = {
      element,
      input: group ? input.querySelector('button.add') : input,
      read,
      faulty: false,
      complain(text) {
        complaint.textContent = text;
        this.faulty = text !== '';
        if (!group) input.setAttribute('aria-invalid', String(this.faulty));
      },
    };
    this.fields.set(path, field);
    return field;
  }

  #select(node, choices, name = (choice) => (typeof choice === 'string' ? choice : writeJson(choice))) {
    const { value, required, nullable, isNew } = node;
    const first = choices.findIndex((choice) => isSame(choice, value));
    const options = choices.map((choice, n) => el('option', { value: n, selected: n === first }, plainName(name(choice))));
    const select = el('select', {}, !required || nullable || first < 0 ? el('option', { value: '' }, this.#hint(node) === 'null' ? 'null' : '') : null, options);
    const shown = select.value;
    const read = () => {
      if (select.value === shown && (!isNew || value !== undefined)) return value;
      return select.value === '' ? this.#nothing(node) : choices[select.value];
    };
    return this.#field(select, node, read);
  }

  // A check box cannot be empty: a value that may be null, or is not there, is chosen from a list.
  #boolean(node) {
    const { value, required, nullable, isNew } = node;
    if (nullable || (value === undefined && !isNew)) return this.#select(node, [true, false], (choice) => (choice ? 'Yes' : 'No'));
    const box = el('input', { type: 'checkbox', checked: value === true });
    const read = () => (box.checked || required || value !== undefined ? box.checked : undefined);
    return this.#field(box, { ...node, required: true }, read, { inline: true });
  }

  #text(node) {
    const { schema, value } = node;
    const text = value ?? '';
    if (schema.format === 'date-time' && !text) return this.#moment(node);
    const long = schema.maxLength > 200 || text.length > 80 || text.includes('\n');
    const type = long ? null : (TYPES[schema.format] ?? 'text');
    const input = el(long ? 'textarea' : 'input', { rows: long ? 4 : null, type, step: type === 'time' ? 1 : null, placeholder: this.#hint(node), autocomplete: 'off' });
    input.value = text;
    if (input.value !== text) {
      input.type = 'text'; // The field for dates takes no other text, but the agent has proposed some.
      input.value = text;
    }
    return this.#input(input, node, (written) => written);
  }

  // A date and a time, with a field for the zone.
  #moment(node) {
    const input = el('input', { type: 'datetime-local', step: 1, autocomplete: 'off' });
    const zone = el('input', { type: 'text', class: 'zone', 'aria-label': `${node.label}: time zone`, placeholder: 'Z or +02:00', autocomplete: 'off' });
    const convert = (written) => {
      if (!ZONE.test(zone.value.trim())) this.#fault(node.path, 'must have a time zone such as Z or +02:00, or none');
      return `${written.length === 16 ? `${written}:00` : written}${zone.value.trim()}`;
    };
    return this.#input(input, node, convert, zone);
  }

  // A field of text: a field for numbers would lose digits.
  #number(node) {
    const { schema, value } = node;
    const input = el('input', { type: 'text', inputmode: schema.minimum >= 0 ? 'decimal' : null, placeholder: this.#hint(node), autocomplete: 'off' });
    input.value = value ?? '';
    const convert = (written) => {
      const number = numberOf(written);
      if (number === undefined) this.#fault(node.path, 'must be a number');
      return number;
    };
    return this.#input(input, node, convert);
  }

  // A number or a text. The server reads a number with a point as a float, so other numbers than floats become text.
  #decimal(node) {
    const { schema, value } = node;
    const input = el('input', { type: 'text', placeholder: this.#hint(node), autocomplete: 'off' });
    input.value = value ?? '';
    const isText = typeof value === 'string' || schema.decimal === 'text';
    const convert = (written) => {
      const number = numberOf(written);
      return isText || number === undefined || (number instanceof Numeral && /[.e]/i.test(written)) ? written.trim() : number;
    };
    return this.#input(input, node, convert);
  }

  #input(input, node, convert, beside = null) {
    const shown = input.value;
    const read = () => {
      const { type, value, validity } = input;
      const shape = type === 'text' ? SHAPES[node.schema.format] : null; // of a text that no field for dates takes
      const isShown = value === shown && !validity.badInput;
      if (isShown && !node.isNew) return node.value;
      if (validity.badInput || validity.typeMismatch || (shape && value && !shape.test(value))) {
        this.#fault(node.path, `must be ${NOUNS[shape ? node.schema.format : type]}`);
        return undefined;
      }
      if (isShown && node.value !== undefined) return node.value;
      return value === '' ? this.#nothing(node) : convert(value);
    };
    return this.#field(input, node, read, { beside });
  }

  #object({ schema, nullable, value, path, label, required, depth, isNew }, names) {
    const { properties, additionalProperties } = schema;
    const needed = new Set(schema.required);
    // A member that the schema does not name may be another name of one that is left out, which then has no default.
    const isCertain = namesOf(value ?? {}).every((name) => own(properties, name) !== undefined);
    const schemaOf = (name) => {
      const given = own(properties, name) ?? additionalProperties;
      return isCertain || !isObject(given) ? given : { ...given, default: undefined };
    };
    const members = names.map((name) => [
      name,
      this.#make(schemaOf(name), own(value, name), `${path}.${name}`, visible(name), needed.has(name) || own(properties, name) === undefined, depth + 1),
    ]);
    const elements = members.map(([, member]) => member.element);
    const element = depth ? el('fieldset', {}, el('legend', {}, label), elements) : el('div', {}, elements);
    const read = () => {
      const before = this.faults.length;
      const now = members.map(([name, member]) => [name, member.read()]);
      if ((value !== undefined || !isNew) && now.every(([name, one]) => one === own(value, name))) return value;
      const pairs = now.filter(([, one]) => one !== undefined);
      if ((required && !nullable) || pairs.length || value !== undefined) return fromPairs(pairs);
      this.faults.length = before; // An optional group without values is left out, with what its fields require.
      return required ? null : undefined;
    };
    return { element, read };
  }

  #list(node) {
    const { schema, value, path, label, required, nullable, depth, isNew } = node;
    let items = [];
    const rows = el('div', { class: 'items' });
    const add = (item) => {
      const wasNew = this.isNew;
      this.isNew ||= item === undefined;
      items.push(this.#make(schema.items, item, `${path}[${items.length}]`, `${label} ${items.length + 1}`, true, depth + 1));
      this.isNew = wasNew;
    };
    const draw = () => rows.replaceChildren(...items.map((item, n) => {
      const remove = button('Remove', () => {
        const values = items.map((one) => one.read());
        for (const own of this.fields.keys()) if (own.startsWith(`${path}[`)) this.fields.delete(own);
        items = [];
        values.filter((_, index) => index !== n).forEach(add);
        draw();
        group.querySelector('button.add').focus();
      }, 'quiet small');
      remove.setAttribute('aria-label', `Remove ${label} ${n + 1}`);
      return el('div', { class: 'item' }, item.element, remove);
    }));
    const more = button('Add', () => {
      add();
      draw();
      rows.lastChild.querySelector('input, select, textarea, button')?.focus();
    }, 'small add');
    const group = el('fieldset', {}, rows, more);
    (value ?? []).forEach(add);
    draw();
    const read = () => {
      if (!items.length && value === undefined) {
        if (!isNew || !required) return undefined;
        return nullable ? null : [];
      }
      const now = items.map((item) => item.read());
      if (now.length === value?.length && now.every((one, n) => one === value[n])) return value;
      return now.filter((one) => one !== undefined);
    };
    return this.#field(group, node, read, { group: true });
  }

  #json(node) {
    const { value, path } = node;
    const area = el('textarea', { rows: 4, spellcheck: 'false', class: 'code', placeholder: 'JSON' });
    area.value = value === undefined ? '' : writeJson(value, { lines: true });
    const shown = area.value;
    const read = () => {
      if (area.value === shown) return value;
      if (area.value.trim() === '') return undefined;
      try {
        return readJson(area.value);
      } catch {
        this.#fault(path, 'is not JSON. Put text in double quotes.');
        return undefined;
      }
    };
    return this.#field(area, { ...node, label: `${node.label} (JSON)` }, read);
  }
}

// Return the number that a text writes; undefined for none.
function numberOf(text) {
  try {
    const number = readJson(text.trim());
    return isNumber(number) ? number : undefined;
  } catch {
    return undefined;
  }
}
