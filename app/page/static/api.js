/**
 * Ask the server: one request, tried again while the server is busy, and errors in plain words.
 *
 * The server answers 429 and 503 with `Retry-After` where trying again helps; other errors are
 * final. Addresses are relative, so the page also works behind a proxy that adds a prefix.
 */

import { authorization, askForKey } from "./key.js";

const MOST_TRIES = 6;
const LONGEST_WAIT = 60;

/**
 * An answer that is an error, with its JSON `body`; `errors` lists wrong fields, each with a path
 * and a message. Its status is 0 where the server cannot be reached.
 */
export class Problem extends Error {
  constructor(status, detail, body = {}) {
    super(detail);
    this.status = status;
    this.body = body;
    this.errors = body.errors ?? [];
  }
}

/** Return the JSON of a GET request. */
export async function getJson(path, signal) {
  const reply = await checked(() => fetch(path, { signal }));
  return reply.json();
}

/** Return the text of a GET request. */
export async function getText(path, signal) {
  const reply = await checked(() => fetch(path, { signal, headers: { Accept: "text/plain" } }));
  return reply.text();
}

/**
 * Post a form and return the response.
 *
 * `onwait` is told the seconds before each further try. Aborting `signal` ends the wait as well as
 * the request, and the server then stops the work.
 */
export async function post(path, form, { signal, accept = "*/*", onwait = () => {} } = {}) {
  for (let tries = 1; ; tries += 1) {
    try {
      return await checked(() =>
        fetch(path, {
          method: "POST",
          body: form,
          signal,
          headers: { Accept: accept, ...authorization() },
        }),
      );
    } catch (error) {
      if (!error.retryAfter || tries === MOST_TRIES) throw error;
      const seconds = Math.min(error.retryAfter, LONGEST_WAIT);
      onwait(seconds);
      await pause(seconds * 1000 * (1 + Math.random() / 4), signal);
    }
  }
}

/** Return the milliseconds of each stage that a response's `Server-Timing` header names. */
export function stagesOf(response) {
  const stages = {};
  for (const part of (response.headers.get("Server-Timing") ?? "").split(",")) {
    const found = part.trim().match(/^(\w+);dur=([\d.]+)$/);
    if (found) stages[found[1]] = Number(found[2]);
  }
  return stages;
}

/** Return whether an error only means that the person cancelled. */
export function isCancelled(error) {
  return error.name === "AbortError";
}

async function checked(request) {
  let reply;
  try {
    reply = await request();
  } catch (error) {
    if (isCancelled(error)) throw error;
    throw new Problem(0, "The server cannot be reached. Check that it is running, then try again.");
  }
  if (reply.ok) return reply;
  const problem = await asProblem(reply);
  if (reply.status === 401 || reply.status === 403) askForKey(reply.status);
  throw problem;
}

async function asProblem(reply) {
  const text = await reply.text();
  let body = {};
  try {
    body = JSON.parse(text) ?? {};
  } catch {
    body = { detail: text.slice(0, 200) };
  }
  const detail = body.detail || `The server answered ${reply.status} ${reply.statusText}.`;
  const problem = new Problem(reply.status, sentence(detail), body);
  const seconds = Number(reply.headers.get("Retry-After"));
  if (reply.status === 429 || reply.status === 503) problem.retryAfter = seconds;
  return problem;
}

/** Return a text that begins with a capital letter and ends with a full stop. */
export function sentence(text) {
  const begun = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?…]$/.test(begun) ? begun : `${begun}.`;
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const stopped = () => {
      clearTimeout(timer);
      reject(signal.reason ?? new DOMException("cancelled", "AbortError"));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stopped);
      resolve();
    }, milliseconds);
    if (signal?.aborted) stopped();
    else signal?.addEventListener("abort", stopped, { once: true });
  });
}
