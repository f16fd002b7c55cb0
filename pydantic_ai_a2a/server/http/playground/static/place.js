// The conversation in the fragment of the URL, which is never sent to the server.

const TASKS = 30; // A longer fragment would be cut by some programs that pass on URLs.

let known = location.hash; // What the page shows. A link changes the URL a moment before the page hears of it.

export function readPlace() {
  known = location.hash;
  const fields = new URLSearchParams(location.hash.slice(1));
  return { context: fields.get('context') || null, tasks: fields.getAll('task') };
}

// begin: true makes an entry of the history, to which Back leads.
export function writePlace(context, tasks, { begin = false } = {}) {
  const fields = new URLSearchParams();
  if (context) fields.set('context', context);
  for (const id of tasks.slice(-TASKS)) fields.append('task', id);
  const hash = fields.size ? `#${fields}` : '';
  if (hash === location.hash || (!begin && known !== location.hash)) return;
  history[begin ? 'pushState' : 'replaceState'](null, '', hash || location.pathname + location.search);
  known = location.hash;
}
