// A task as a list of blocks, made of snapshots and events. Holds data only.

const PENDING = 'application/vnd.pydantic-ai.pending-calls+json';
const ENDED = new Set(['COMPLETED', 'FAILED', 'CANCELED', 'REJECTED', 'FORGOTTEN']);

export const isPending = (part) => (part.mediaType ?? part.metadata?.type) === PENDING;

const textOf = (parts) => (parts.every((part) => part.text !== undefined) ? parts.map((part) => part.text).join('') : null);

// The first words of the user.
export function titleOf(messages) {
  const first = messages.find((message) => message.role === 'ROLE_USER');
  return first?.parts.map((part) => part.text ?? part.filename ?? '').join(' ').slice(0, 80) ?? '';
}

export class Task {
  constructor(contextId = null) {
    this.id = null;
    this.contextId = contextId;
    this.state = 'SENDING';
    this.lastEventId = '';
    this.blocks = new Map(); // key -> {kind, version, ...}, in the order of the page
    this.question = null; // the message that the task waits with
    this.version = 0;
  }

  // The first words of the task.
  get title() {
    return titleOf([...this.blocks.values()].map((block) => block.message).filter(Boolean));
  }

  get ended() {
    return ENDED.has(this.state);
  }

  get waiting() {
    return this.state === 'INPUT_REQUIRED' || this.state === 'AUTH_REQUIRED';
  }

  get streaming() {
    return !this.ended && !this.waiting;
  }

  // Take an event of a stream.
  take(id, event) {
    if (id) this.lastEventId = id;
    if (event.task) {
      this.missEvents();
      this.load(event.task);
    } else if (event.statusUpdate) this.#takeStatus(event.statusUpdate);
    else if (event.artifactUpdate) this.#takeArtifact(event.artifactUpdate);
    else if (event.message) this.#takeReply(event.message);
  }

  // Take a whole task.
  load(task) {
    this.id = task.id;
    this.contextId = task.contextId ?? this.contextId;
    for (const message of task.history ?? []) this.addMessage(message);
    this.#setStatus(task.status);
    const texts = new Set((task.history ?? []).filter((one) => one.role === 'ROLE_AGENT').map((one) => textOf(one.parts)));
    for (const artifact of task.artifacts ?? []) {
      const text = textOf(artifact.parts);
      this.#put(`artifact ${artifact.artifactId}`, { kind: 'artifact', artifact, hidden: text !== null && texts.has(text) });
    }
  }

  addMessage(message) {
    const kind = message.role === 'ROLE_USER' ? 'user' : message.parts.some(isPending) ? 'asked' : 'agent';
    const key = `message ${message.messageId}`;
    if (this.blocks.get(key)?.kind !== kind) this.#put(key, { kind, message });
  }

  fail(text) {
    this.#put('failure', { kind: 'failure', text });
  }

  // The server has begun anew, and does not have the task any more.
  forget() {
    this.state = 'FORGOTTEN';
    this.question = null;
    this.#stopTools();
    this.fail('The server has restarted and forgot this task.');
  }

  clearFailure() {
    if (this.blocks.delete('failure')) this.version++;
  }

  #takeReply(message) {
    this.contextId = message.contextId ?? this.contextId;
    this.addMessage(message);
    this.state = 'COMPLETED';
    this.version++;
  }

  #takeStatus({ taskId, contextId, status }) {
    this.id = taskId;
    this.contextId = contextId ?? this.contextId;
    const progress = status.message?.metadata?.progress;
    if (progress === 'thinking' || progress === 'tool') this.#takeProgress(status.message, progress);
    else this.#setStatus(status);
  }

  #setStatus(status) {
    this.state = status.state.replace('TASK_STATE_', '');
    this.question = this.waiting ? (status.message ?? { parts: [] }) : null;
    this.version++;
    if (this.ended) this.#stopTools();
    if (!status.message || this.waiting) return;
    if (this.state === 'FAILED' || this.state === 'REJECTED') {
      const text = textOf(status.message.parts.filter((part) => part.text));
      this.#put('end', { kind: 'failure', text, id: status.message.metadata?.correlationId });
    } else {
      this.addMessage(status.message);
      this.#hideArtifacts(textOf(status.message.parts));
    }
  }

  // A whole task takes the place of events that this page never gets.
  missEvents() {
    for (const block of this.blocks.values()) if (block.outcome === null) block.missed = true;
  }

  // A task completes only after all of its tools.
  #stopTools() {
    for (const block of this.blocks.values()) {
      if (block.kind === 'tool' && block.outcome === null) {
        block.outcome = this.state === 'COMPLETED' ? 'success' : block.missed ? 'ended' : 'stopped';
        block.version++;
      }
    }
  }

  // The text beside a tool call comes as an artifact first, and then as a message.
  #hideArtifacts(text) {
    for (const block of this.blocks.values()) {
      if (block.kind === 'artifact' && !block.hidden && text !== null && textOf(block.artifact.parts) === text) {
        block.hidden = true;
        block.version++;
      }
    }
  }

  #takeProgress(message, progress) {
    const { phase, toolName, toolCallId } = message.metadata;
    const [part] = message.parts;
    if (progress === 'thinking') this.#put(`thought ${message.messageId}`, { kind: 'thought', text: part.text });
    else if (phase === 'call') this.#put(`tool ${toolCallId}`, { kind: 'tool', name: toolName, args: part?.data, outcome: null });
    else {
      const call = this.blocks.get(`tool ${toolCallId}`) ?? { kind: 'tool', name: toolName };
      this.#put(`tool ${toolCallId}`, { ...call, outcome: part?.data?.outcome ?? 'success' });
    }
  }

  #takeArtifact({ artifact, append, lastChunk }) {
    const key = `artifact ${artifact.artifactId}`;
    const block = this.blocks.get(key);
    if (append && block) {
      appendParts(block.artifact.parts, artifact.parts);
      block.version++;
      this.version++;
      return;
    }
    if (block && !lastChunk) this.blocks.delete(key); // The text begins anew, below the steps so far.
    this.#put(key, { kind: 'artifact', artifact: { ...artifact, parts: [...artifact.parts] }, hidden: false });
  }

  #put(key, block) {
    const version = (this.blocks.get(key)?.version ?? 0) + 1;
    this.blocks.set(key, { ...block, version });
    this.version++;
  }
}

function appendParts(parts, more) {
  for (const part of more) {
    const last = parts.at(-1);
    if (part.text !== undefined && last?.text !== undefined) parts[parts.length - 1] = { ...last, text: last.text + part.text };
    else parts.push(part);
  }
}
