// A form made of a JSON Schema. Values that no field fits are written as JSON.

import { el, newId, plainName } from './dom.js';

const DEEPEST = 4;

export class FieldError extends Error {
  constructor(path, message) {
    super(message);
    this.path = path;
  }
}

export class SchemaForm {
  // path: the place of the value in the answer, by which the server names faults.
  constructor(schema, defs, value, path, label) {
    this.defs = defs ?? {};
    this.fields = new Map();
    this.root = this.#make(schema, value, path, label, true, 0);
    this.element = this.root.element;
  }

  read() {
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

  #make(given, value, path, label, required, depth) {
    const [schema, nullable] = this.#plain(given);
    const optional = !required || nullable;
    const initial = value === undefined ? schema.default : value;
    if ('const' in schema) return { element: null, read: () => schema.const };
    if (Array.isArray(schema.enum)) return this.#select(schema, initial, path, label, optional);
    if (schema.type === 'boolean') return this.#checkbox(schema, initial, path, label, optional);
    if (schema.type === 'string') return this.#text(schema, initial, path, label, optional);
    if (schema.type === 'number' || schema.type === 'integer') return this.#number(schema, initial, path, label, optional);
    if (schema.type === 'object' && schema.properties && depth < DEEPEST) return this.#object(schema, initial, path, label, depth, optional);
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

  #field(input, schema, path, label, read, { inline = false, optional = false } = {}) {
    const id = newId();
    const complaint = el('p', { class: 'complaint', id: `${id}-complaint` });
    const hint = schema.description ? el('p', { class: 'hint', id: `${id}-hint` }, plainName(schema.description)) : null;
    input.id = id;
    input.setAttribute('aria-describedby', `${id}-complaint${hint ? ` ${id}-hint` : ''}`);
    const title = el('label', { for: id }, plainName(schema.title ?? label), optional ? el('small', {}, ' optional') : null);
    const element = el('div', { class: inline ? 'field inline' : 'field' }, inline ? [input, title] : [title, input], hint, complaint);
    const field = {
      element,
      input,
      read,
      faulty: false,
      complain(text) {
        complaint.textContent = text;
        this.faulty = text !== '';
        input.setAttribute('aria-invalid', String(this.faulty));
      },
    };
    this.fields.set(path, field);
    return field;
  }

  #select(schema, value, path, label, optional) {
    const options = schema.enum.map((choice) =>
      el('option', { value: JSON.stringify(choice), selected: JSON.stringify(choice) === JSON.stringify(value) }, plainName(choice)),
    );
    const select = el('select', {}, optional || value === undefined ? el('option', { value: '' }, '') : null, options);
    const read = () => (select.value === '' ? undefined : JSON.parse(select.value));
    return this.#field(select, schema, path, label, read, { optional });
  }

  #checkbox(schema, value, path, label, optional) {
    const box = el('input', { type: 'checkbox', checked: value === true });
    const read = () => (box.checked || !optional || value !== undefined ? box.checked : undefined);
    return this.#field(box, schema, path, label, read, { inline: true });
  }

  #text(schema, value, path, label, optional) {
    const long = schema.maxLength > 200 || String(value ?? '').length > 80;
    const input = long ? el('textarea', { rows: 4 }) : el('input', { type: 'text', autocomplete: 'off' });
    input.value = value ?? '';
    const read = () => (optional && input.value === '' ? undefined : input.value);
    return this.#field(input, schema, path, label, read, { optional });
  }

  #number(schema, value, path, label, optional) {
    const input = el('input', { type: 'text', inputmode: 'decimal', autocomplete: 'off' });
    input.value = value ?? '';
    const read = () => {
      const text = input.value.trim();
      if (text === '') return undefined;
      const number = Number(text);
      return Number.isFinite(number) ? number : text; // The server says that a text is no number.
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
      const fields = [...others, ...members.map(([name, member]) => [name, member.read()])].filter(([, one]) => one !== undefined);
      return optional && !fields.length ? undefined : Object.fromEntries(fields);
    };
    return { element, read };
  }

  #json(schema, value, path, label, optional) {
    const area = el('textarea', { rows: 4, spellcheck: 'false', class: 'code', placeholder: 'JSON' });
    area.value = value === undefined ? '' : JSON.stringify(value, null, 2);
    const read = () => {
      if (area.value.trim() === '') return undefined;
      try {
        return JSON.parse(area.value);
      } catch {
        throw new FieldError(path, 'is not JSON. Put text in double quotes.');
      }
    };
    return this.#field(area, schema, path, `${label} (JSON)`, read, { optional });
  }
}
