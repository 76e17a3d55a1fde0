/** Repeat requests that the server refused for now. Only those of jobs have effects. */

/** Number of tries, and pauses between them in milliseconds, which double up to the longest. */
export interface Retries {
  tries: number;
  firstPause: number;
  longestPause: number;
}

export const DEFAULT_RETRIES: Retries = { tries: 6, firstPause: 500, longestPause: 60_000 };

/** Longest Retry-After in milliseconds that is waited for. */
const LONGEST_TOLD = 600_000;

/**
 * Return a `fetch` that repeats requests after 429 and 503 with Retry-After, after failed
 * connections, after the 429, 502, 503 and 504 of proxies, which are no problem documents, and after
 * a 504 of the server's default deadline. A request that would make or remove a job twice is repeated
 * only if the server refused it.
 */
export function retrying(inner: typeof fetch, retries: Retries): typeof fetch {
  return async (input, init) => {
    const request = new Request(input, init);
    const repeatable = isRepeatable(request);
    for (let tried = 1; ; tried++) {
      let answer: Response | null = null;
      let failure: unknown = null;
      try {
        answer = await inner(request.clone());
      } catch (error) {
        if (request.signal.aborted) throw error;
        failure = error;
      }
      const refused = answer !== null && isRefusal(answer);
      const pause = refused ? told(answer as Response, retries, tried) : backoff(retries, tried);
      const again = refused || (repeatable && (answer === null || isOfProxy(answer) || isLate(answer, request)));
      if (!again || pause === null || tried >= retries.tries) {
        if (answer === null) throw failure;
        return answer;
      }
      await answer?.body?.cancel();
      await sleep(pause, request.signal);
    }
  };
}

/** Return whether a request does the same when the server gets it twice. */
function isRepeatable(request: Request): boolean {
  const ofJobs = /\/jobs(\/|$)/.test(new URL(request.url).pathname);
  return !ofJobs || request.method === "GET" || request.headers.has("Idempotency-Key");
}

/** Return whether the server did nothing and tells when to ask again. */
function isRefusal(answer: Response): boolean {
  return [429, 503].includes(answer.status) && answer.headers.has("Retry-After");
}

/** Return whether a proxy answered that limits its clients, or whose server is being replaced. */
function isOfProxy(answer: Response): boolean {
  const isProblem = answer.headers.get("Content-Type")?.startsWith("application/problem+json");
  return [429, 502, 503, 504].includes(answer.status) && !isProblem;
}

/** Return whether the default deadline of the server passed, and not the caller's own. */
function isLate(answer: Response, request: Request): boolean {
  return answer.status === 504 && !request.headers.has("X-Deadline-Ms");
}

/** Return the milliseconds that a refusal asks for, or null if they are too many. */
function told(answer: Response, retries: Retries, tried: number): number | null {
  const header = answer.headers.get("Retry-After") ?? "";
  const seconds = /^\d+$/.test(header) ? Number(header) : (Date.parse(header) - Date.now()) / 1000;
  if (!(seconds * 1000 <= LONGEST_TOLD)) return null;
  return Math.max(seconds * 1000, longer(retries, tried)) * (1 + Math.random() / 4);
}

function backoff(retries: Retries, tried: number): number {
  return longer(retries, tried) * (0.5 + Math.random() / 2);
}

function longer(retries: Retries, tried: number): number {
  return Math.min(retries.longestPause, retries.firstPause * 2 ** (tried - 1));
}

function sleep(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", stop);
      resolve();
    }, milliseconds);
    if (signal.aborted) stop();
    else signal.addEventListener("abort", stop, { once: true });
  });
}
