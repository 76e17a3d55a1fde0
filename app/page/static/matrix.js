/**
 * The field of a list of numbers: a grid with one cell for each. A list of lists, such as the
 * weights of `convolve`, can be resized; a list of fixed length is laid out in rows of four.
 */

import { el } from "./dom.js";

/** Return the control of a list of numbers, or of a list of equally long rows of numbers. */
export function matrixField(schema, id, value, onchange) {
  return schema.items.type === "array"
    ? resizable(schema, id, value ?? schema.default, onchange)
    : fixed(schema, id, value ?? schema.default, onchange);
}

function fixed(schema, id, value, onchange) {
  const columns = value.length % 4 === 0 ? 4 : value.length;
  const cells = value.map((each, n) =>
    cell(schema.items, each, place(n, columns), n === 0 ? id : null, onchange));
  const body = grid(cells, columns);
  return { head: null, body, get: () => cells.map(read) };
}

function resizable(schema, id, value, onchange) {
  let rows = value;
  let cells = [];
  const body = el("div", { class: "grid-scroll" });
  const most = schema.maxLength ?? schema.maxItems;
  const size = (word, start, own) => el("input", { type: "number", class: "number", min: 1,
    max: most, step: 1, value: start, "aria-label": word, id: own });
  const height = size("Rows", rows.length, id);
  const width = size("Columns", rows[0].length, null);
  const get = () => cells.map((row) => row.map(read));
  const draw = () => {
    const columns = rows[0].length;
    cells = rows.map((row, y) => row.map((each, x) =>
      cell(schema.items.items, each, place(y * columns + x, columns), null, onchange)));
    body.replaceChildren(grid(cells.flat(), columns));
  };
  const resize = () => {
    if (!height.checkValidity() || !width.checkValidity()) return;
    rows = resized(get(), Number(height.value), Number(width.value));
    draw();
    onchange();
  };
  for (const input of [height, width]) input.addEventListener("change", resize);
  draw();
  const head = el("span", { class: "quantity" }, height, "×", width);
  return { head, body, get };
}

/** Return the rows cut or filled with zeros, with the middle of the old rows in the middle. */
function resized(rows, height, width) {
  const down = Math.floor(height / 2) - Math.floor(rows.length / 2);
  const across = Math.floor(width / 2) - Math.floor(rows[0].length / 2);
  return Array.from({ length: height }, (_, y) =>
    Array.from({ length: width }, (_, x) => rows[y - down]?.[x - across] ?? 0));
}

function grid(cells, columns) {
  const node = el("div", { class: "grid" }, cells);
  node.style.setProperty("--columns", columns);
  return node;
}

function place(n, columns) {
  return `Row ${Math.floor(n / columns) + 1}, column ${(n % columns) + 1}`;
}

function cell(schema, value, name, id, onchange) {
  return el("input", { type: "number", class: "number", value, min: schema.minimum,
    max: schema.maximum, step: "any", "aria-label": name, id, oninput: onchange });
}

function read(input) {
  return input.value === "" ? 0 : Number(input.value);
}
