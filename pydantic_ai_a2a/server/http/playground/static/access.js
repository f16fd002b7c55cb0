// Credentials, as the schemes of the card ask for them. Only the memory of this page has them.

import { el, plainName } from './dom.js';

export class Access {
  constructor() {
    this.ways = [];
    this.values = new Map();
    this.cookies = false;
  }

  setCard(card) {
    this.ways = Object.entries(card.securitySchemes ?? {}).map(([name, scheme]) => wayOf(name, scheme)).filter(Boolean);
    this.cookies = this.ways.some((way) => way.place === 'cookie');
  }

  // True if a request has credentials, as far as the page knows.
  get ready() {
    return this.ways.some((way) => this.values.get(way.name));
  }

  // True if the browser may have credentials that the page does not know: a cookie or a certificate.
  get hidden() {
    return this.ways.some((way) => way.place === 'cookie' || way.place === null);
  }

  // Return the headers of a request, and add credentials that belong into its query.
  apply(url) {
    const headers = {};
    for (const way of this.ways) {
      const value = this.values.get(way.name);
      if (!value) continue;
      if (way.place === 'header') headers[way.key] = way.write(value);
      else if (way.place === 'query') url.searchParams.set(way.key, value);
    }
    return headers;
  }

  // Return the form; used() is called once there are other credentials.
  draw(used) {
    if (!this.ways.length) return null;
    const fields = this.ways.map((way) => {
      if (way.place === 'cookie') return el('p', { class: 'hint' }, `The browser sends the cookie ${plainName(way.key)} of this site.`);
      if (way.place === null) return el('p', { class: 'hint' }, `${plainName(way.name)}: the browser has the certificate.`);
      const id = `access-${plainName(way.name)}`;
      const input = el('input', { id, type: 'password', autocomplete: 'off', spellcheck: 'false', placeholder: way.placeholder ?? null });
      input.value = this.values.get(way.name) ?? '';
      input.addEventListener('input', () => this.values.set(way.name, input.value.trim()));
      return el('div', { class: 'field' }, el('label', { for: id }, way.label), input);
    });
    const onsubmit = (event) => {
      event.preventDefault();
      used();
    };
    return el(
      'form',
      { class: 'access', 'aria-label': 'Credentials', onsubmit },
      el('h2', {}, 'Credentials'),
      fields,
      el('div', { class: 'acts' }, el('button', { type: 'submit', class: 'primary small' }, 'Use')),
      el('p', { class: 'hint' }, 'This page forgets credentials when you close or reload the page.'),
    );
  }
}

function wayOf(name, scheme) {
  const key = scheme.apiKeySecurityScheme;
  const http = scheme.httpAuthSecurityScheme;
  if (key) return { name, place: key.location, key: key.name, write: (value) => value, label: `API key (${plainName(key.name)})` };
  if (http && http.scheme.toLowerCase() === 'basic') {
    const write = (value) => `Basic ${btoa(String.fromCharCode(...new TextEncoder().encode(value)))}`;
    return { name, place: 'header', key: 'Authorization', write, label: 'User and password', placeholder: 'user:password' };
  }
  if (scheme.mtlsSecurityScheme) return { name, place: null };
  const kind = http ? http.scheme : 'Bearer';
  const label = kind.toLowerCase() === 'bearer' ? 'Bearer token' : `${plainName(kind)} credentials`;
  return { name, place: 'header', key: 'Authorization', write: (value) => `${kind} ${value}`, label };
}
