// Calls the HTTP+JSON binding of A2A 1.0 by URLs relative to the page.

import { readJson, writeJson } from './json.js';

const MEDIA_TYPE = 'application/a2a+json';
export const RUN_METADATA = 'https://pypi.org/project/pydantic-ai-a2a/#run-metadata-v1';
const LIVE_TEXT = 'https://pypi.org/project/pydantic-ai-a2a/#live-text-v1';

export class ApiError extends Error {
  constructor(status, body, retryAfter) {
    const error = body?.error ?? {};
    super(error.message ?? `The server answered with HTTP ${status}.`);
    const details = Array.isArray(error.details) ? error.details : [];
    this.status = status;
    this.violations = details.flatMap((detail) => detail.fieldViolations ?? []);
    this.correlationId = details.find((detail) => detail.metadata?.correlationId)?.metadata.correlationId;
    this.retryAfter = Number(retryAfter) || 0;
  }
}

export function messageOf(error) {
  if (!(error instanceof ApiError)) return error instanceof TypeError ? 'The server cannot be reached.' : error.message;
  return error.correlationId ? `${error.message} (${error.correlationId})` : error.message;
}

export class Api {
  constructor(root, access, log) {
    this.base = new URL(root, document.baseURI);
    this.access = access;
    this.log = log;
    this.streams = true;
    this.extensions = [LIVE_TEXT];
    this.unlisted = null; // the refusal of a server that lists no tasks for this caller
  }

  card() {
    return this.#result('GET', './.well-known/agent-card.json');
  }

  task(id) {
    return this.#result('GET', `./tasks/${encodeURIComponent(id)}`);
  }

  // Return the steps of tasks by the tasks' ids, and their version; null if this page is not the one of a developer.
  // after: a version, for an answer once there are further steps.
  async steps(ids, after) {
    const url = new URL(`${document.documentElement.dataset.page}steps`, document.baseURI);
    for (const id of ids) url.searchParams.append('task', id);
    if (after) url.searchParams.append('after', after);
    const answer = await fetch(url, { method: 'POST', credentials: 'omit', redirect: 'error', referrerPolicy: 'no-referrer' });
    if (!answer.ok) throw new ApiError(answer.status);
    return [readJson(await answer.text()), answer.headers.get('Steps-Version')];
  }

  // Return the newest tasks of all conversations.
  async newest() {
    return (await this.#list({ pageSize: '50' })).tasks;
  }

  // Return a page of the newest tasks in a state. The log leaves it out: the inbox asks again and again.
  waiting(state, pageToken) {
    return this.#list({ status: `TASK_STATE_${state}`, historyLength: '0', pageSize: '20', ...(pageToken && { pageToken }) }, null);
  }

  // Return a page of a list. A server that refuses lists is not asked again.
  async #list(query, log = this.log) {
    if (this.unlisted) throw this.unlisted;
    try {
      return await this.#result('GET', `./tasks?${new URLSearchParams(query)}`, undefined, log);
    } catch (error) {
      if (error.status === 403) this.unlisted = error;
      throw error;
    }
  }

  // Return whether a server that keeps tasks in memory has begun anew since this page was loaded.
  async restarted() {
    const { process } = document.documentElement.dataset;
    if (!process) return false;
    const page = await (await fetch(location.pathname, { cache: 'no-cache', referrerPolicy: 'no-referrer' })).text();
    return !page.includes(` data-process="${process}"`);
  }

  cancel(id) {
    return this.#result('POST', `./tasks/${encodeURIComponent(id)}:cancel`, {});
  }

  // Return the tasks of a conversation, the oldest first.
  async tasks(context) {
    const tasks = [];
    let pageToken = '';
    do {
      const page = await this.#list({ contextId: context, includeArtifacts: 'true', pageSize: '50', ...(pageToken && { pageToken }) });
      tasks.push(...page.tasks);
      pageToken = page.nextPageToken;
    } while (pageToken && tasks.length < 200);
    return tasks.reverse();
  }

  // Send a message. Yields the events of the answer as [id, event]; one event if the agent does not stream.
  async *send(message, signal) {
    if (this.streams) yield* this.#stream('POST', './message:stream', { message }, '', signal);
    else yield ['', await this.#result('POST', './message:send', { message })];
  }

  // Answer a task that waits. Returns its state at once, without the run that follows.
  answer(message) {
    return this.#result('POST', './message:send', { message, configuration: { returnImmediately: true } });
  }

  // Follow a task after an event. Yields [id, event]; opened() is called once the server sends the stream.
  subscribe(id, lastEventId, signal, opened) {
    return this.#stream('GET', `./tasks/${encodeURIComponent(id)}:subscribe`, undefined, lastEventId, signal, opened);
  }

  // log: null for a request that the log leaves out.
  async #result(method, path, body, log = this.log) {
    const answer = await this.#fetch(method, path, body, {}, undefined, log);
    const result = await this.#read(answer, method, path, log);
    if (!answer.ok) throw new ApiError(answer.status, result, answer.headers.get('Retry-After'));
    return result;
  }

  async #read(answer, method, path, log = this.log) {
    const text = await answer.text();
    let body = text;
    try {
      body = readJson(text);
    } catch {
      // Not of the agent: perhaps a proxy's own page. The log shows the text.
    }
    log?.add('answer', `${answer.status} ${method} ${path}`, body);
    return body;
  }

  #fetch(method, path, body, headers = {}, signal = undefined, log = this.log) {
    const url = new URL(path, this.base);
    const own = this.access.apply(url);
    log?.add('request', `${method} ${path}`, body);
    return fetch(url, {
      method,
      headers: { 'A2A-Version': '1.0', 'A2A-Extensions': this.extensions.join(', '), ...(body ? { 'Content-Type': MEDIA_TYPE } : {}), ...headers, ...own },
      body: body && writeJson(body),
      cache: 'no-cache',
      credentials: this.access.cookies ? 'same-origin' : 'omit',
      redirect: 'error',
      referrerPolicy: 'no-referrer',
      signal,
    });
  }

  async *#stream(method, path, body, lastEventId, signal, opened = () => {}) {
    const headers = {
      Accept: 'text/event-stream',
      ...(lastEventId ? { 'Last-Event-ID': lastEventId } : {}),
    };
    const answer = await this.#fetch(method, path, body, headers, signal);
    if (!answer.ok) throw new ApiError(answer.status, await this.#read(answer, method, path), answer.headers.get('Retry-After'));
    opened();
    for await (const [id, data] of serverSentEvents(answer.body)) {
      const event = readJson(data);
      this.log.add('event', `${id} ${describe(event)}`, event);
      yield [id, event];
    }
  }
}

function describe(event) {
  const [kind] = Object.keys(event);
  const { status, artifact } = event[kind];
  return `${kind} ${status ? (status.message?.metadata?.progress ?? status.state.replace('TASK_STATE_', '').toLowerCase()) : (artifact?.name ?? '')}`;
}

async function* serverSentEvents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let id = '';
  let data = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = value.split('\n');
      lines[0] = rest + lines[0];
      rest = lines.pop();
      for (const line of lines) {
        if (line === '' || line === '\r') {
          if (data.length) yield [id, data.join('\n')];
          data = [];
        } else if (line.startsWith('id:')) id = line.slice(3).trim();
        else if (line.startsWith('data:')) data.push(line.slice(5).trim());
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // The connection is gone or no longer needed.
  }
}
