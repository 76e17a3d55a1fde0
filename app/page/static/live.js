/**
 * What the server does now: rate, queue, batch sizes, stage times, and limits in use.
 *
 * It reads `/metrics` every two seconds while the view is shown, and shows what changed since the
 * last reading. Where the metrics have a port of their own, or cannot be read, it shows what
 * `/readyz?verbose` knows.
 */

import { getJson, getText } from "./api.js";
import { byId, el, svg } from "./dom.js";

const LINE = /^(\w+)(?:\{(.*)\})? (\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;
const PERIOD = 2000;
const STAGES = ["fetch", "decode", "queue", "upload", "compute", "download", "encode"];
const KEPT = 60; // readings of the curve: two minutes

/** The view; `start()` and `stop()` follow whether it is shown. */
export class Live {
  constructor() {
    this.timer = null;
    this.last = null;
    this.rates = [];
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) clearTimeout(this.timer);
      else if (this.shown) this.#read();
    });
  }

  start() {
    this.shown = true;
    this.#read();
  }

  stop() {
    this.shown = false;
    clearTimeout(this.timer);
  }

  async #read() {
    clearTimeout(this.timer);
    try {
      const [health, metrics] = await Promise.all([
        getJson("readyz?verbose").catch(answered), getText("metrics").catch(answered),
      ]);
      const isText = typeof metrics === "string";
      showState(health);
      byId("live-partial").hidden = isText;
      if (isText) this.#show(parsed(metrics), performance.now());
      else showHealthOnly(health, metrics);
    } catch (error) {
      if (error.status !== 0) throw error; // a fault of this page
      byId("live-state").textContent = "The server does not answer. Trying again…";
    }
    if (this.shown && !document.hidden) this.timer = setTimeout(() => this.#read(), PERIOD);
  }

  #show(samples, now) {
    const readings = {
      now,
      images: sum(samples, "darkroom_images_total"),
      sizes: sumsBy(samples, "darkroom_batch_size_bucket", "le"),
      stageSums: sumsBy(samples, "darkroom_stage_duration_seconds_sum", "stage"),
      stageCounts: sumsBy(samples, "darkroom_stage_duration_seconds_count", "stage"),
    };
    const last = this.last;
    this.last = readings;
    tile("queue", sum(samples, "darkroom_queue_images"));
    tile("running", sum(samples, "darkroom_running_images"));
    tile("total", readings.images);
    showLimits(samples);
    showSizes(samples, readings.sizes);
    showStages(readings.stageSums, readings.stageCounts, last);
    if (!last) return;
    const rate = Math.max(0, readings.images - last.images) / ((now - last.now) / 1000);
    this.rates = [...this.rates, rate].slice(-KEPT);
    tile("rate", rate.toFixed(rate > 0 && rate < 10 ? 1 : 0));
    showCurve(this.rates);
  }
}

/** Return an answer that is an error; throw where there was no answer at all. */
function answered(error) {
  if (!error.status) throw error;
  return error;
}

function tile(name, value) {
  byId(`live-${name}`).textContent = String(value);
}

/** Show whether the server is ready. While it is not, its answer is an error of the same form. */
function showState(answer) {
  const place = byId("live-state");
  const health = answer.body ?? answer;
  if (!health.worker) {
    const words = "Not ready: the server answers, but does not take work now.";
    place.textContent = `${words} ${answer.message}`;
    return;
  }
  const { worker, weights } = health;
  const words = { ok: "Ready", degraded: "Degraded" }[health.status] ?? "Not ready";
  const parts = [words, `computes on ${worker.device}`, `weights ${weights.name ?? "missing"}`];
  place.textContent = [...parts, worker.degraded].filter(Boolean).join(" · ");
}

/** Show what is known without metrics, and why there are none. */
function showHealthOnly(answer, error) {
  byId("live-partial").textContent = error.status === 404
    ? "The metrics of this server have a port of their own (DARKROOM_METRICS_PORT), so only its "
      + "health is shown here."
    : `The metrics cannot be shown now: ${error.message}`;
  const { worker } = answer.body ?? answer;
  if (!worker) return;
  tile("queue", worker.queued_images);
  tile("running", worker.running_images);
  tile("rate", worker.images_per_second);
}

function showSizes(samples, cumulative) {
  const counted = buckets(cumulative).filter(({ count }) => count > 0);
  const count = sum(samples, "darkroom_batch_size_count");
  const mean = count ? sum(samples, "darkroom_batch_size_sum") / count : 0;
  tile("batch", count ? mean.toFixed(1) : "–");
  const most = Math.max(1, ...counted.map((each) => each.count));
  rows("live-sizes", counted.map(({ edge, count: n }) =>
    [`up to ${edge.replace(/\.0$/, "").replace("+Inf", "∞")}`, n / most, `${n}`]));
}

/** Show the mean of each stage since the last reading, or since the start where nothing came. */
function showStages(sums, counts, last) {
  const recent = last ? growth(last.stageCounts, counts) : counts;
  const busy = last && [...recent.values()].some((each) => each > 0);
  const grown = busy ? growth(last.stageSums, sums) : sums;
  const n = busy ? recent : counts;
  const means = [...grown].filter(([stage]) => n.get(stage) > 0)
    .map(([stage, seconds]) => [stage, (seconds / n.get(stage)) * 1000])
    .sort(([one], [other]) => STAGES.indexOf(one) - STAGES.indexOf(other));
  const most = Math.max(1e-9, ...means.map(([, each]) => each));
  const period = busy ? "of the last 2 seconds" : "since the start";
  byId("live-stages-note").textContent = `mean ${period}`;
  rows("live-stages", means.map(([stage, each]) =>
    [stage, each / most, `${each.toFixed(each < 10 ? 2 : 0)} ms`]));
}

function showLimits(samples) {
  const used = sumsBy(samples, "darkroom_in_use", "limit");
  const limits = [...sumsBy(samples, "darkroom_limit", "limit")].filter(([, most]) => most > 0);
  rows("live-limits", limits.map(([name, most]) => {
    const share = (used.get(name) ?? 0) / most;
    const digits = share > 0 && share < 0.1 ? 1 : 0;
    return [name.replaceAll("_", " "), share, `${(share * 100).toFixed(digits)} %`];
  }));
}

/** Write a table of names, bars from 0 to 1, and values. */
function rows(id, entries) {
  const table = byId(id);
  const made = entries.map(([name, share, text]) => {
    const bar = el("span", { class: "bar", "aria-hidden": "true" });
    bar.style.setProperty("--share", `${share * 100}%`);
    return el("tr", {}, el("th", { scope: "row" }, name), el("td", { class: "wide" }, bar),
      el("td", { class: "value" }, text));
  });
  table.replaceChildren(...made);
  byId(`${id}-empty`).hidden = made.length > 0;
}

function showCurve(rates) {
  const most = Math.max(0.5, ...rates);
  const points = rates.map((rate, n) => {
    const x = ((KEPT - rates.length + n) / (KEPT - 1)) * 300;
    return `${x.toFixed(1)},${(58 - (rate / most) * 54).toFixed(1)}`;
  });
  byId("live-curve").replaceChildren(
    svg("path", { d: "M0 58H300" }), svg("polyline", { points: points.join(" ") }));
  const idle = rates.every((rate) => rate === 0);
  const highest = `${most.toFixed(most < 10 ? 1 : 0)} images/s at most`;
  byId("live-curve-most").textContent = idle ? "idle" : highest;
}

/** Return the samples of a text: a list of `{ labels, value }` for each metric's name. */
function parsed(text) {
  const samples = new Map();
  for (const line of text.split("\n")) {
    const found = line.startsWith("#") ? null : line.match(LINE);
    if (!found) continue;
    const labels = {};
    for (const [, name, value] of (found[2] ?? "").matchAll(LABEL)) labels[name] = value;
    if (!samples.has(found[1])) samples.set(found[1], []);
    samples.get(found[1]).push({ labels, value: Number(found[3]) });
  }
  return samples;
}

/** Return the sum of the samples of a metric that `fits` accepts. */
function sum(samples, name, fits = () => true) {
  const found = (samples.get(name) ?? []).filter(({ labels }) => fits(labels));
  return found.reduce((total, { value }) => total + value, 0);
}

/** Return the sums of a metric's samples for each value of one label. */
function sumsBy(samples, name, label) {
  const sums = new Map();
  for (const { labels, value } of samples.get(name) ?? []) {
    sums.set(labels[label], (sums.get(labels[label]) ?? 0) + value);
  }
  return sums;
}

/** Return how much each value of a map grew; what restarted from zero counts from zero. */
function growth(before, now) {
  const grown = new Map();
  for (const [key, value] of now) {
    const old = before.get(key) ?? 0;
    grown.set(key, value >= old ? value - old : value);
  }
  return grown;
}

/** Return the count in each bucket of a histogram, from its cumulative counts by `le`. */
function buckets(cumulative) {
  const edges = [...cumulative.keys()].sort((a, b) => Number(a.replace("+Inf", "Infinity")) -
    Number(b.replace("+Inf", "Infinity")));
  return edges.map((edge, n) => {
    const below = n === 0 ? 0 : cumulative.get(edges[n - 1]);
    return { edge, count: Math.max(0, cumulative.get(edge) - below) };
  });
}
