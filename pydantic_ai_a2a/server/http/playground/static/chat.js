// A conversation: sends messages, follows tasks, and resumes streams that are cut.

import { ApiError, RUN_METADATA, messageOf } from './api.js';
import { newId } from './dom.js';
import { readPlace, writePlace } from './place.js';
import { Task, answerTo, callsOf } from './task.js';
import { FIRST_PAUSE, LONGEST_PAUSE, repeated, sleep } from './tries.js';

const REPLAY = 'https://pypi.org/project/pydantic-ai-a2a/#message-replay-v1';

export class Chat {
  // changed() is called after each change; denied(error) if the server wants credentials.
  constructor(api, { changed, denied }) {
    this.api = api;
    this.changed = changed;
    this.denied = denied;
    this.replays = false;
    this.#clear();
  }

  setCard(card) {
    this.api.streams = card.capabilities?.streaming !== false;
    const uris = (card.capabilities?.extensions ?? []).map((extension) => extension.uri);
    this.replays = uris.includes(REPLAY);
    if (uris.includes(RUN_METADATA)) this.api.extensions.push(RUN_METADATA);
  }

  #clear() {
    this.left?.abort();
    this.left = new AbortController();
    this.context = null;
    this.tasks = [];
  }

  begin() {
    this.#clear();
    writePlace(null, [], { begin: true });
    this.changed();
  }

  // Show the conversation that the URL names. Returns false if the server has none of its tasks.
  async load() {
    this.#clear();
    const { context, tasks } = readPlace();
    const { signal } = this.left;
    this.changed();
    if (!context && !tasks.length) return true;
    this.context = context;
    const found = await this.#find(context, tasks);
    if (signal.aborted) return true;
    for (const snapshot of found) {
      const task = new Task();
      task.load({ ...snapshot, status: await this.#exact(snapshot.id, snapshot.status) });
      if (signal.aborted) return true;
      this.context = task.contextId;
      this.tasks.push(task);
      if (task.goesOn) this.#subscribe(task);
    }
    this.changed();
    return this.tasks.length > 0;
  }

  // Return the tasks of a conversation: from the list, or one by one if the server refuses lists.
  async #find(context, ids) {
    try {
      if (context) return await this.api.tasks(context);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status === 401 || !ids.length) throw error;
    }
    const found = await Promise.allSettled(ids.map((id) => this.api.task(id)));
    if (found.every((one) => one.status === 'rejected')) throw found[0].reason;
    return found.filter((one) => one.status === 'fulfilled').map((one) => one.value);
  }

  // The task whose question the next message answers.
  get asking() {
    return this.tasks.findLast((task) => task.waiting) ?? null;
  }

  // Begin a task. Throws what the server refuses.
  send = async (parts) => {
    const task = new Task(this.context);
    this.tasks.push(task);
    try {
      await this.#deliver(task, parts, this.context ? { contextId: this.context } : {});
    } catch (error) {
      this.tasks = this.tasks.filter((one) => one !== task);
      this.changed();
      throw error;
    }
  };

  // Send a message to a task that waits for it.
  answer = async (task, parts) => {
    const { question } = task;
    try {
      await this.#deliver(task, parts, { taskId: task.id, ...answerTo(question) });
    } catch (error) {
      if (await this.#forgets(task, error)) return;
      // A refused decision leaves its form, so that a second press cannot decide the next call.
      if (!callsOf(question).length && (await this.#hasGoneOn(task, question, error))) {
        this.#report(task, error);
        this.#touch(task);
      }
      throw error;
    }
  };

  cancel = async (task) => {
    if (task.cancelling) return;
    task.cancelling = true;
    this.#touch(task);
    try {
      task.load(await this.api.cancel(task.id));
      task.following?.abort();
    } catch (error) {
      if (!(await this.#forgets(task, error))) this.#report(task, error);
    }
    task.cancelling = false;
    this.#touch(task);
  };

  // Another part of the page, or another client, has answered a task that the conversation shows as waiting.
  answered = (id) => {
    const task = this.tasks.find((one) => one.id === id && one.state === 'INPUT_REQUIRED');
    if (task) this.retry(task);
  };

  retry = (task) => {
    task.broken = false;
    task.clearFailure();
    this.#subscribe(task);
    this.#touch(task);
  };

  async #deliver(task, parts, ids) {
    const message = { messageId: newId(), role: 'ROLE_USER', parts, ...ids };
    if (task.id === null) {
      task.addMessage(message);
      this.#touch(task);
    }
    const following = new AbortController();
    const stopped = AbortSignal.any([following.signal, this.left.signal]);
    const opened = await this.#open(task, message, stopped);
    if (opened === null) return;
    task.following?.abort();
    task.clearFailure();
    if (!opened.first.done) task.take(opened.first.value[0], await this.#exactEvent(opened.first.value[1]));
    this.#follow(task, opened.stream, following, stopped);
    this.#touch(task);
  }

  // Return the stream of a message and its first event; null if the user left the conversation.
  async #open(task, message, stopped) {
    const open = async () => {
      const stream = this.api.send(message, stopped);
      return { stream, first: await stream.next() };
    };
    const lost = () => {
      task.lost = true;
      this.#touch(task);
    };
    try {
      return await repeated(open, { replays: this.replays, stopped, lost });
    } catch (error) {
      throw this.#checked(error);
    } finally {
      task.lost = false;
    }
  }

  // Follow a task that this page has not sent a message to, or whose stream was given up.
  #subscribe(task) {
    const following = new AbortController();
    const stopped = AbortSignal.any([following.signal, this.left.signal]);
    this.#follow(task, this.#resume(task, stopped), following, stopped);
  }

  // The connection is there again once the server sends a stream, perhaps long before the next event.
  #resume(task, stopped) {
    return this.api.subscribe(task.id, task.lastEventId, stopped, () => {
      task.lost = false;
      this.#touch(task);
    });
  }

  async #follow(task, opened, following, stopped) {
    task.following = following;
    let stream = opened;
    for (let pause = FIRST_PAUSE; ; pause = Math.min(2 * pause, LONGEST_PAUSE)) {
      let least = 0;
      try {
        for await (const [id, event] of stream) {
          if (stopped.aborted) return;
          pause = FIRST_PAUSE;
          task.lost = false;
          task.take(id, await this.#exactEvent(event));
          this.changed();
        }
        if (!task.goesOn || task.id === null) return;
      } catch (error) {
        if (stopped.aborted) return;
        if (error instanceof ApiError && error.status < 500 && error.status !== 429) return this.#lookUp(task, error);
        least = (error.retryAfter ?? 0) * 1000;
      }
      task.lost = !task.waitsForApprover; // The stream of a message ends with the wait.
      this.#touch(task);
      await sleep(Math.max(pause, least), stopped);
      if (stopped.aborted) return;
      stream = this.#resume(task, stopped);
    }
  }

  // The server refuses to go on with a stream: the task has ended, or is gone.
  async #lookUp(task, error) {
    task.lost = false;
    try {
      const whole = await this.api.task(task.id);
      task.missEvents();
      task.load(whole);
      if (task.streaming) throw error;
    } catch (fault) {
      task.broken = !(await this.#forgets(task, fault));
      if (task.broken) this.#report(task, fault);
    }
    this.#touch(task);
  }

  // Whether somebody else has answered a question, after the server has refused an answer of this page.
  async #hasGoneOn(task, question, error) {
    if (!(error instanceof ApiError) || error.status !== 400) return false;
    const whole = await this.api.task(task.id).catch(() => null);
    if (!whole || whole.status?.message?.messageId === question?.messageId) return false;
    task.load(whole);
    if (task.goesOn) this.#subscribe(task);
    return true;
  }

  // Return a status that says who decides about its approvals: GetTask does, and other answers may not.
  async #exact(id, status) {
    if (status?.state !== 'TASK_STATE_INPUT_REQUIRED') return status;
    if (callsOf(status.message).every((call) => call?.kind !== 'approval' || call.decidedBy)) return status;
    const now = await this.api.task(id).catch(() => null);
    return now?.status?.message?.messageId === status.message.messageId ? now.status : status;
  }

  async #exactEvent(event) {
    const [kind] = Object.keys(event);
    const { id, taskId = id, status } = event[kind] ?? {};
    return status ? { [kind]: { ...event[kind], status: await this.#exact(taskId, status) } } : event;
  }

  // End a task that a server in memory has forgotten at a restart.
  async #forgets(task, error) {
    if (error.status !== 404 || !(await this.api.restarted())) return false;
    task.forget();
    this.#touch(task);
    return true;
  }

  #report(task, error) {
    task.fail(messageOf(this.#checked(error)));
  }

  #checked(error) {
    if (error.status === 401) this.denied(error);
    return error;
  }

  #touch(task) {
    task.version++;
    this.changed();
  }

  // Write the conversation into the URL.
  writePlace() {
    const ids = this.tasks.map((task) => task.id).filter(Boolean);
    this.context = this.tasks.at(-1)?.contextId ?? this.context;
    if (this.context) writePlace(this.context, ids);
  }
}
