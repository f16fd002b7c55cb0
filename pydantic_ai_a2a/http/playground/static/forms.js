// A form made of a JSON Schema. Values that no field fits are written as JSON.

import { button, el, newId, plainName } from './dom.js';

const DEEPEST = 4;
const TYPES = { date: 'date', time: 'time', 'date-time': 'datetime-local', email: 'email', uri: 'url' };
const SHAPES = { date: /^\d{4}-\d\d-\d\d$/, time: /^\d\d:\d\d/, 'date-time': /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d/ };
const NOUNS = { date: 'a date', time: 'a time', 'date-time': 'a date and a time', 'datetime-local': 'a date and a time', email: 'an email address', url: 'a URL', number: 'a number' };

// What a form lacks before it is sent, in the words of the server's own complaints.
export class FormError extends Error {
  constructor(violations) {
    super(violations.map(({ description }) => description).join('\n'));
    this.violations = violations;
  }
}

export class SchemaForm {
  // path: the place of the value in the answer, by which the server names faults.
  constructor(schema, defs, value, path, label) {
    this.defs = defs ?? {};
    this.fields = new Map();
    this.faults = [];
    this.root = this.#make(schema, value, path, label, true, 0);
    this.element = this.root.element;
  }

  // Return the value. Throws what is missing or malformed.
  read() {
    const value = this.draft();
    if (this.faults.length) throw new FormError(this.faults);
    return value;
  }

  // Return the value as far as there is one.
  draft() {
    this.faults = [];
    return this.root.read();
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

  #make(given, value, path, label, required, depth) {
    const [schema, nullable] = this.#plain(given);
    const optional = !required || nullable;
    const initial = value === undefined ? schema.default : value;
    if ('const' in schema) return { element: null, read: () => schema.const };
    if (Array.isArray(schema.enum)) return this.#select(schema, initial, path, label, optional);
    if (schema.type === 'boolean') return this.#boolean(schema, initial, path, label, required, nullable);
    if (schema.type === 'string') return this.#text(schema, initial, path, label, optional);
    if (schema.type === 'number' || schema.type === 'integer') return this.#number(schema, initial, path, label, optional);
    if (schema.type === 'object' && schema.properties && depth < DEEPEST) return this.#object(schema, initial, path, label, depth, optional);
    if (schema.type === 'array' && schema.items && !schema.prefixItems && depth < DEEPEST && (initial == null || Array.isArray(initial))) {
      return this.#list(schema, initial, path, label, depth, optional);
    }
    return this.#json(schema, initial, path, label, optional);
  }

  // Return a schema without references, and whether the value may be null.
  #plain(schema) {
    let plain = schema ?? {};
    for (let n = 0; n < 10 && typeof plain.$ref === 'string'; n++) {
      const { $ref, ...rest } = plain;
      plain = { ...(this.defs[$ref.replace('#/$defs/', '')] ?? {}), ...rest };
    }
    const choices = (plain.anyOf ?? []).filter((choice) => choice.type !== 'null');
    if (plain.anyOf?.length === 2 && choices.length === 1) {
      const { anyOf, ...rest } = plain;
      return [{ ...this.#plain(choices[0])[0], ...rest }, true];
    }
    return [plain, false];
  }

  // A label, an input and its complaint. The input may be a group of fields.
  #field(input, schema, path, label, read, { inline = false, optional = false, group = false } = {}) {
    const id = newId();
    const complaint = el('p', { class: 'complaint', id: `${id}-complaint` });
    const hint = schema.description ? el('p', { class: 'hint', id: `${id}-hint` }, plainName(schema.description)) : null;
    input.id = id;
    input.setAttribute('aria-describedby', `${id}-complaint${hint ? ` ${id}-hint` : ''}`);
    const name = [plainName(schema.title ?? label), optional ? el('small', {}, ' optional') : null];
    const title = group ? null : el('label', { for: id }, name);
    if (group) input.prepend(el('legend', {}, name));
    const element = el('div', { class: inline ? 'field inline' : 'field' }, inline ? [input, title] : [title, input], hint, complaint);
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

  #select(schema, value, path, label, optional) {
    const options = schema.enum.map((choice) =>
      el('option', { value: JSON.stringify(choice), selected: JSON.stringify(choice) === JSON.stringify(value) }, plainName(schema.names?.[choice] ?? choice)),
    );
    const select = el('select', {}, optional || value === undefined ? el('option', { value: '' }, '') : null, options);
    const read = () => {
      if (select.value !== '') return JSON.parse(select.value);
      if (!optional) this.#fault(path, 'is required');
      return undefined;
    };
    return this.#field(select, schema, path, label, read, { optional });
  }

  // A check box cannot be empty: a value that may be null is chosen from a list.
  #boolean(schema, value, path, label, required, nullable) {
    if (nullable) return this.#select({ ...schema, enum: [true, false], names: { true: 'Yes', false: 'No' } }, value, path, label, true);
    const box = el('input', { type: 'checkbox', checked: value === true });
    const read = () => (box.checked || required || value !== undefined ? box.checked : undefined);
    return this.#field(box, schema, path, label, read, { inline: true });
  }

  #text(schema, value, path, label, optional) {
    const long = schema.maxLength > 200 || String(value ?? '').length > 80;
    const type = long ? null : TYPES[schema.format];
    const input = el(long ? 'textarea' : 'input', { rows: long ? 4 : null, type: long ? null : (type ?? 'text'), step: type === 'time' || type === 'datetime-local' ? 1 : null, autocomplete: 'off' });
    input.value = value ?? '';
    if (input.value !== String(value ?? '').replaceAll('\r\n', '\n')) {
      input.type = 'text'; // The field for dates takes no other text, but the agent has proposed some.
      input.value = value;
    }
    return this.#input(input, schema, path, label, (text) => text, { optional, emptied: value === '' });
  }

  #number(schema, value, path, label, optional) {
    const { minimum, maximum } = schema;
    const input = el('input', { type: typeof value === 'string' ? 'text' : 'number', step: schema.type === 'integer' ? 1 : 'any', min: minimum, max: maximum, autocomplete: 'off' });
    input.value = value ?? '';
    return this.#input(input, schema, path, label, (text) => (Number.isFinite(+text) ? +text : text), { optional });
  }

  // A field of one line. emptied: the empty text is a value.
  #input(input, schema, path, label, convert, { optional, emptied = false }) {
    const read = () => {
      const { type, value, validity } = input;
      const shape = type === 'text' ? SHAPES[schema.format] : null; // of a text that no field for dates takes
      if (validity.badInput || validity.typeMismatch || (shape && value && !shape.test(value))) this.#fault(path, `must be ${NOUNS[shape ? schema.format : type]}`);
      else if (value !== '' || emptied) return convert(value);
      else if (!optional) this.#fault(path, 'is required');
      return undefined;
    };
    return this.#field(input, schema, path, label, read, { optional });
  }

  #object(schema, value, path, label, depth, optional) {
    const required = new Set(schema.required);
    const members = Object.entries(schema.properties).map(([name, member]) => [
      name,
      this.#make(member, value?.[name], `${path}.${name}`, name, required.has(name), depth + 1),
    ]);
    const elements = members.map(([, member]) => member.element);
    const element = depth ? el('fieldset', {}, el('legend', {}, plainName(schema.title ?? label)), elements) : el('div', {}, elements);
    const others = Object.entries(value ?? {}).filter(([name]) => !(name in schema.properties));
    const read = () => {
      const before = this.faults.length;
      const fields = [...others, ...members.map(([name, member]) => [name, member.read()])].filter(([, one]) => one !== undefined);
      if (!optional || fields.length) return Object.fromEntries(fields);
      this.faults.length = before; // An optional group without values is left out, with what its fields require.
      return undefined;
    };
    return { element, read };
  }

  #list(schema, value, path, label, depth, optional) {
    let items = [];
    const rows = el('div', { class: 'items' });
    const add = (item) => {
      const place = `${path}[${items.length}]`;
      items.push(this.#make(schema.items, item, place, `${plainName(schema.title ?? label)} ${items.length + 1}`, true, depth + 1));
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
      remove.setAttribute('aria-label', `Remove ${plainName(schema.title ?? label)} ${n + 1}`);
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
    const read = () => (optional && !items.length && value == null ? undefined : items.map((item) => item.read()).filter((item) => item !== undefined));
    return this.#field(group, schema, path, label, read, { optional, group: true });
  }

  #json(schema, value, path, label, optional) {
    const area = el('textarea', { rows: 4, spellcheck: 'false', class: 'code', placeholder: 'JSON' });
    area.value = value === undefined ? '' : JSON.stringify(value, null, 2);
    const read = () => {
      if (area.value.trim() === '') return undefined;
      try {
        return JSON.parse(area.value);
      } catch {
        this.#fault(path, 'is not JSON. Put text in double quotes.');
        return undefined;
      }
    };
    return this.#field(area, schema, path, `${label} (JSON)`, read, { optional });
  }
}
