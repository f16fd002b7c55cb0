// Sends messages that got no answer again.

import { ApiError } from './api.js';

export const FIRST_PAUSE = 500;
export const LONGEST_PAUSE = 15_000;
const TRIES = 4; // of a message that gets no answer at all

// Return what send() returns; null if the user left meanwhile. Only a server that runs a repeated message once gets the
// message again. lost() is called before each pause.
export async function repeated(send, { replays, stopped, lost }) {
  for (let tries = 1, pause = FIRST_PAUSE; ; tries++, pause *= 2) {
    try {
      return await send();
    } catch (error) {
      if (stopped.aborted) return null;
      const refused = error instanceof ApiError && error.status !== 503;
      if (refused || !replays || tries === TRIES) throw error;
      lost();
      await sleep(Math.max(pause, error.retryAfter * 1000 || 0), stopped);
    }
  }
}

export function sleep(time, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, time);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
