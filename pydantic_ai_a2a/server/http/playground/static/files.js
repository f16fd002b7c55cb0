// Files that go with the next message, within the limits of the server.

import { button, bytes, el, icon, plainName } from './dom.js';
import { drawImage } from './parts.js';

const ROOM = 4_000; // bytes of a request beside files and text

export class Attachments {
  constructor({ list, limits, complain }) {
    this.list = list;
    this.limits = limits;
    this.complain = complain;
    this.files = [];
  }

  add(files) {
    const faults = [];
    for (const file of files) {
      const fault = this.#fault(file);
      if (fault) faults.push(`${plainName(file.name)}: ${fault}`);
      else this.files.push(file);
    }
    this.complain(faults.join('\n'));
    this.#draw();
  }

  clear() {
    this.files = [];
    this.#draw();
  }

  // Return the files as parts of a message.
  parts() {
    return Promise.all(this.files.map(readPart));
  }

  #fault(file) {
    const { files, body } = this.limits;
    if (this.files.length >= files) return `a message may have ${files} files.`;
    const total = this.files.reduce((sum, one) => sum + one.size, file.size);
    if ((total * 4) / 3 + ROOM > body) return `the message would be larger than ${bytes(body)}, which the server takes.`;
    return '';
  }

  #draw() {
    this.list.hidden = !this.files.length;
    this.list.replaceChildren(
      ...this.files.map((file) => {
        const name = plainName(file.name);
        const remove = button(icon('close'), () => {
          this.files = this.files.filter((one) => one !== file);
          this.#draw();
        }, 'quiet icon');
        remove.setAttribute('aria-label', `Remove ${name}`);
        return el('li', { class: 'chip' }, drawImage(file, '') ?? icon('file'), el('span', { class: 'filename' }, name), el('small', {}, bytes(file.size)), remove);
      }),
    );
  }
}

function readPart(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => {
      const mediaType = file.type.split(';')[0];
      resolve({ raw: reader.result.split(',')[1] ?? '', filename: file.name, ...(mediaType ? { mediaType } : {}) });
    };
    reader.onerror = () => reject(new Error(`${plainName(file.name)} cannot be read.`));
    reader.readAsDataURL(file);
  });
}

// Let people drop files on an element.
export function takeDrops(target, add) {
  const hasFiles = (event) => event.dataTransfer?.types.includes('Files');
  target.addEventListener('dragover', (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    target.classList.add('drop');
  });
  target.addEventListener('dragleave', (event) => {
    if (!target.contains(event.relatedTarget)) target.classList.remove('drop');
  });
  target.addEventListener('drop', (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    target.classList.remove('drop');
    add(event.dataTransfer.files);
  });
}
