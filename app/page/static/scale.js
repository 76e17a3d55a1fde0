/**
 * Map the values of a number's JSON Schema to the positions of a slider and back.
 *
 * Ranges over several powers of ten are logarithmic, so that small values, which differ most to
 * the eye, do not share one position.
 */

const LOGARITHMIC = 300;
const MOST_LINEAR = 400;

/** Return the distance of allowed values: 1 or 2 for integers, a power of ten for numbers. */
export function stepOf(schema) {
  if (schema.type === "integer") return schema.not?.multipleOf === 2 ? 2 : 1;
  return Math.min(1, 10 ** Math.floor(Math.log10((schema.maximum - schema.minimum) / 80)));
}

/** Return the scale of a schema: `positions`, `toValue(position)` and `toPosition(value)`. */
export function scaleOf(schema) {
  return isWide(schema) ? logarithmic(schema) : linear(schema);
}

/** Return whether a slider makes sense: not for numbers such as seeds, which have no order. */
export function hasSlider(schema) {
  return schema.minimum !== undefined && schema.maximum <= 1e9;
}

function isWide(schema) {
  const { minimum: low, maximum: high, default: usual } = schema;
  if (low < 0) return false;
  const span = high - low;
  const small = usual - low < span / 20 && (usual > low || (schema.type === "number" && span > 20));
  return small || span / stepOf(schema) > MOST_LINEAR || (low > 0 && high / low >= 50);
}

function linear(schema) {
  const { minimum: low, maximum: high } = schema;
  const step = stepOf(schema);
  const positions = Math.floor((high - low) / step + 1e-9);
  return {
    positions,
    toValue: (position) => rounded(low + position * step),
    toPosition: (value) => Math.round((value - low) / step),
  };
}

/** Every position has a value of its own: integers are whole, other numbers have three digits. */
function logarithmic(schema) {
  const { minimum: low, maximum: high } = schema;
  const step = stepOf(schema);
  const shift = low > 0 ? 0 : Math.min(1, (schema.default || 10) / 10);
  const [from, to] = [Math.log(low + shift), Math.log(high + shift)];
  const allowed = (value) => {
    if (schema.type !== "integer") return Number(value.toPrecision(3));
    return low + Math.round((value - low) / step) * step;
  };
  const values = new Set([low]);
  for (let n = 1; n < LOGARITHMIC; n += 1) {
    values.add(rounded(allowed(Math.exp(from + ((to - from) * n) / LOGARITHMIC) - shift)));
  }
  const sorted = [...values.add(high)].filter((each) => each >= low && each <= high);
  const distance = (value, position) => Math.abs(sorted[position] - value);
  return {
    positions: sorted.length - 1,
    toValue: (position) => sorted[position],
    toPosition: (value) =>
      sorted.reduce((best, _, n) => (distance(value, n) < distance(value, best) ? n : best), 0),
  };
}

/** Return a number without the last bits that sums of decimal fractions leave. */
function rounded(value) {
  return Number(value.toPrecision(12));
}
