/**
 * Run tasks with bounded concurrency, in the order in which they were added.
 *
 * Each task is an island: it fails or is cancelled alone, and the others go on.
 */

/** A queue that runs at most `limit` tasks at a time. */
export class TaskQueue {
  constructor(limit) {
    this.limit = limit;
    this.running = 0;
    this.waiting = [];
  }

  /** Add `run(signal)`; return its AbortController, which also takes a waiting task out. */
  add(run) {
    const controller = new AbortController();
    const task = { run, signal: controller.signal };
    this.waiting.push(task);
    controller.signal.addEventListener("abort", () => {
      this.waiting = this.waiting.filter((each) => each !== task);
    });
    this.#next();
    return controller;
  }

  #next() {
    while (this.running < this.limit && this.waiting.length) {
      const { run, signal } = this.waiting.shift();
      this.running += 1;
      run(signal).finally(() => {
        this.running -= 1;
        this.#next();
      });
    }
  }
}
