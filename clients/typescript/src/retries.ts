/** Repeat requests that the server refused for now. Requests for images have no effects. */

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
 * connections, and after the 502, 503 and 504 of proxies, which are no problem documents.
 */
export function retrying(inner: typeof fetch, retries: Retries): typeof fetch {
  return async (input, init) => {
    const request = new Request(input, init);
    for (let tried = 1; ; tried++) {
      let answer: Response | null = null;
      let failure: unknown = null;
      try {
        answer = await inner(request.clone());
      } catch (error) {
        if (request.signal.aborted) throw error;
        failure = error;
      }
      const pause = answer === null ? backoff(retries, tried) : told(answer, retries, tried);
      if (pause === null || tried >= retries.tries) {
        if (answer === null) throw failure;
        return answer;
      }
      await answer?.body?.cancel();
      await sleep(pause, request.signal);
    }
  };
}

/** Return the milliseconds before the next try, or null if the answer is final. */
function told(answer: Response, retries: Retries, tried: number): number | null {
  const header = answer.headers.get("Retry-After");
  const isProblem = answer.headers.get("Content-Type")?.startsWith("application/problem+json");
  if ((answer.status === 429 || answer.status === 503) && header !== null) {
    const seconds = /^\d+$/.test(header) ? Number(header) : (Date.parse(header) - Date.now()) / 1000;
    if (!(seconds * 1000 <= LONGEST_TOLD)) return null;
    return Math.max(seconds * 1000, longer(retries, tried)) * (1 + Math.random() / 4);
  }
  return [502, 503, 504].includes(answer.status) && !isProblem ? backoff(retries, tried) : null;
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
