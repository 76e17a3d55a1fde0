/**
 * Read the text format of Prometheus, and compute rates and means between two readings.
 */

const LINE = /^(\w+)(?:\{(.*)\})? (\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

/** Return the samples of a text: a list of `{ labels, value }` for each metric's name. */
export function parsed(text) {
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
export function sum(samples, name, fits = () => true) {
  const found = (samples.get(name) ?? []).filter(({ labels }) => fits(labels));
  return found.reduce((total, { value }) => total + value, 0);
}

/** Return the sums of a metric's samples for each value of one label. */
export function sumsBy(samples, name, label) {
  const sums = new Map();
  for (const { labels, value } of samples.get(name) ?? []) {
    sums.set(labels[label], (sums.get(labels[label]) ?? 0) + value);
  }
  return sums;
}

/** Return how much each value of a map grew; what restarted from zero counts from zero. */
export function growth(before, now) {
  const grown = new Map();
  for (const [key, value] of now) {
    const old = before.get(key) ?? 0;
    grown.set(key, value >= old ? value - old : value);
  }
  return grown;
}

/** Return the count in each bucket of a histogram, from its cumulative counts by `le`. */
export function buckets(cumulative) {
  const edges = [...cumulative.keys()].sort((a, b) => Number(a.replace("+Inf", "Infinity")) -
    Number(b.replace("+Inf", "Infinity")));
  return edges.map((edge, n) => {
    const below = n === 0 ? 0 : cumulative.get(edges[n - 1]);
    return { edge, count: Math.max(0, cumulative.get(edge) - below) };
  });
}
