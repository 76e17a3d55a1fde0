/** Errors of whole requests; what is wrong with one image is the `error` of its record. */

import type { components } from "./schema.js";

/** Problem details (RFC 9457): `code` is stable, `detail` says what is wrong and what to do. */
export type Problem = components["schemas"]["Problem"];

/** The server refused a request, or did not answer it completely. */
export class DarkroomError extends Error {
  override readonly name = "DarkroomError";

  constructor(
    readonly problem: Problem,
    readonly requestId: string | null,
  ) {
    super(`${problem.detail} (${problem.status} ${problem.code})`);
  }

  /** Return the error of an answer that is no success; its body is read. */
  static async of(answer: Response): Promise<DarkroomError> {
    const text = await answer.text();
    return DarkroomError.from(answer, parsed(text) ?? text);
  }

  /** Return the error of an answer whose body was read: JSON as a value, or any other text. */
  static from(answer: Response, body: unknown): DarkroomError {
    const detail = `HTTP ${answer.status} ${String(body).slice(0, 200)}`.trim();
    const other = made("http_error", answer.statusText || "HTTP error", answer.status, detail);
    const problem = isProblem(body) ? body : other;
    return new DarkroomError(problem, answer.headers.get("X-Request-ID"));
  }
}

/** Return a problem that the client itself found. */
export function made(code: string, title: string, status: number, detail: string): Problem {
  return { type: "about:blank", title, status, detail, code };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null; // the page of a proxy
  }
}

function isProblem(value: unknown): value is Problem {
  return typeof value === "object" && value !== null && "code" in value && "detail" in value;
}
