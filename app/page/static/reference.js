/**
 * The reference: every endpoint with its options, its body, a curl line to try it, and its answers.
 *
 * All of it is written from the OpenAPI document of the server, so it is never out of date.
 */

import { announce, byId, el } from "./dom.js";

const BESIDE_NAME = "x-beside-name"; // options of single filters: the gallery explains these
const COMMON = ["400", "401", "403", "408", "414", "429", "431", "default"];
const DEEPEST = 6;

/** Write the reference of an OpenAPI document. */
export function showReference(document) {
  const place = byId("reference");
  const groups = Map.groupBy(operationsOf(document), ({ tag }) => tag);
  place.replaceChildren(...[...groups].map(([tag, operations]) =>
    el("section", {}, el("h3", {}, titled(tag)), operations.map((each) => each.node))));
  byId("reference-version").textContent = `Version ${document.info.version}`;
  const all = [...place.querySelectorAll("details.endpoint")];
  all[0].open = true;
  const search = byId("reference-search");
  search.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const node of all) {
      node.hidden = !words.every((word) => node.textContent.toLowerCase().includes(word));
    }
    for (const section of place.children) {
      section.hidden = !section.querySelector("details.endpoint:not([hidden])");
    }
    const found = all.filter((node) => !node.hidden);
    if (words.length && found.length === 1) found[0].open = true;
    byId("reference-count").textContent = words.length ? `${found.length} of ${all.length}` : "";
  });
  byId("reference-open").addEventListener("click", () => {
    const open = !all.every((node) => node.open);
    for (const node of all) node.open = open;
    byId("reference-open").textContent = open ? "Close all" : "Open all";
  });
}

function operationsOf(document) {
  return Object.entries(document.paths).flatMap(([path, operations]) =>
    Object.entries(operations).map(([method, operation]) => ({
      tag: operation.tags?.[0] ?? "other",
      node: endpoint(document, method, path, operation),
    })));
}

function endpoint(document, method, path, operation) {
  const [first, ...rest] = (operation.description ?? "").split("\n\n");
  const every = operation.parameters ?? [];
  const options = every.filter(({ schema }) => !schema[BESIDE_NAME]);
  const bodies = Object.entries(operation.requestBody?.content ?? {});
  const parts = [
    ...rest.map((text) => el("p", {}, prose(text))),
    el("h4", {}, "Try it"), tryIt(document, method, path, operation),
    options.length ? [el("h4", {}, "Options"), fieldList(document, options.map((each) =>
      [each.name, { ...each.schema, description: each.description }, each.required, each.in]))] : [],
    options.length < every.length ? el("p", { class: "note" }, "Options of single filters stand in "
      + "the ", el("a", { href: byId("to-filters").href }, "gallery of filters"), ".") : null,
    bodies.length ? [el("h4", {}, "Body"), bodiesOf(document, bodies)] : [],
    el("h4", {}, "Answers"), answersOf(document, operation.responses),
  ].flat();
  return el("details", { class: "endpoint", id: `${method}-${operation.operationId}` },
    el("summary", {}, el("span", { class: `method ${method}` }, method.toUpperCase()), " ",
      el("code", {}, path), " ", el("span", { class: "note" }, prose(first))), parts);
}

/** Return a curl line with a button that copies it, and a link where a browser can open the path. */
function tryIt(document, method, path, operation) {
  const line = curlOf(document, method, path, operation);
  const code = el("code", {}, line);
  const copy = el("button", { type: "button", class: "small", onclick: async () => {
    try {
      await navigator.clipboard.writeText(line);
      announce("The command was copied.");
      copy.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code); // without HTTPS there is no clipboard
      copy.textContent = "Press Ctrl+C";
    }
    setTimeout(() => { copy.textContent = "Copy"; }, 2500);
  } }, "Copy");
  const opens = method === "get" && !path.includes("{") && !operation.responses["501"];
  return el("div", { class: "try-it" }, el("pre", { tabindex: "0" }, code), el("div", { class: "row" },
    copy, opens ? el("a", { class: "button small", href: path.slice(1) }, "Open") : null));
}

function curlOf(document, method, path, operation) {
  const filled = path.replace("{name}", "gaussian_blur").replace("{model}", "resnet18");
  const address = new URL(`.${filled.replace(/[{}]/g, "")}`, window.location.href).href;
  const content = operation.requestBody?.content ?? {};
  const lines = [`curl ${address}`];
  if (method !== "get" && !(method === "post" && operation.requestBody)) {
    lines.push(`-X ${method.toUpperCase()}`);
  }
  const form = content["multipart/form-data"]?.schema.properties;
  if (form?.files) {
    lines.push("-F files=@photo.jpg");
    for (const [name, schema] of Object.entries(form)) {
      const example = schema.examples?.[0];
      if (example !== undefined && !schema[BESIDE_NAME]) lines.push(`-F '${name}=${textOf(example)}'`);
    }
  } else if (content["application/x-ndjson"]) {
    lines.push("-H 'Content-Type: application/x-ndjson'",
      `--data-binary '{"url": "https://…/photo.jpg"}'`);
  } else if (content["application/json"]) {
    const sample = JSON.stringify(sampleOf(document, content["application/json"].schema));
    lines.push("-H 'Content-Type: application/json'", `-d '${sample}'`);
  }
  if (Object.keys(operation.responses["200"]?.content ?? {})[0]?.startsWith("image/")) {
    lines.push("-o picture");
  }
  return lines.join(" \\\n  ");
}

function bodiesOf(document, bodies) {
  const files = bodies.filter(([, { schema }]) => !propertiesOf(document, schema ?? {}));
  const objects = bodies.filter((each) => !files.includes(each));
  return [
    files.length ? el("p", {}, "A file, or a stream, as one of:") : null,
    files.length ? words(files.map(([kind]) => kind)) : null,
    ...objects.map(([kind, { schema }]) => el("details", {}, el("summary", {}, el("code", {}, kind),
      " with these fields"), fieldsOf(document, schema))),
  ];
}

function answersOf(document, responses) {
  const row = ([status, { description, content = {}, headers = {} }]) => {
    const kinds = Object.entries(content);
    const schema = kinds.find(([kind]) => kind.endsWith("json"))?.[1].schema;
    return [el("dt", {}, el("code", { class: `status s${status[0]}` },
      status === "default" ? "other" : status)), el("dd", {}, el("p", {}, prose(description)),
      kinds.length ? words(kinds.map(([kind]) => kind)) : null,
      Object.keys(headers).length ? el("p", { class: "note" },
        `Headers: ${Object.keys(headers).join(", ")}`) : null,
      schema ? el("details", {}, el("summary", {}, "Schema and example"),
        fieldsOf(document, schema), el("pre", { tabindex: "0" },
          JSON.stringify(sampleOf(document, schema), null, 2))) : null)];
  };
  const every = Object.entries(responses);
  const own = every.filter(([status]) => !COMMON.includes(status));
  const common = every.filter(([status]) => COMMON.includes(status));
  return [el("dl", { class: "fields" }, own.map(row)),
    common.length ? el("details", {}, el("summary", {}, "Errors that every endpoint has"),
      el("dl", { class: "fields" }, common.map(row))) : null];
}

function fieldsOf(document, schema, depth = 0) {
  const found = propertiesOf(document, schema);
  if (!found) return el("p", {}, kindOf(document, schema));
  const { properties, required = [] } = found;
  return fieldList(document, Object.entries(properties).filter(([, each]) => !each[BESIDE_NAME])
    .map(([name, each]) => [name, each, required.includes(name)]), depth);
}

/** Return a list of fields: name, kind, default, meaning, and the values of enumerations. */
function fieldList(document, fields, depth = 0) {
  return el("dl", { class: "fields" }, fields.map(([name, given, required, where]) => {
    const schema = resolved(document, given);
    const values = variants(document, schema).flatMap((each) => each.enum ?? []);
    const usual = schema.default === undefined || schema.default === null ? null
      : `default ${textOf(schema.default)}`;
    const facts = [kindOf(document, schema), where, required ? "required" : null, usual];
    const example = schema.examples?.[0];
    const inner = depth < DEEPEST && propertiesOf(document, schema);
    return [el("dt", {}, el("code", {}, name)), el("dd", {},
      el("p", { class: "note" }, facts.filter(Boolean).join(" · ")),
      el("p", {}, prose(given.description ?? schema.description ?? "")),
      values.length ? words(values.map(String)) : null,
      example === undefined ? null : el("p", {}, "Example: ", el("code", {}, textOf(example))),
      inner ? el("details", {}, el("summary", {}, "Fields"),
        fieldsOf(document, schema, depth + 1)) : null)];
  }));
}

/** Describe the values of a schema: "integer from 1 to 100", "list of string". */
function kindOf(document, schema) {
  return variants(document, schema).map((each) => {
    if (each.enum) return "one of these";
    if (each.type === "array") return `list of ${kindOf(document, each.items ?? {})}`;
    const low = each.minimum ?? each.ge;
    const high = each.maximum ?? each.le;
    const kind = each.format === "binary" ? "file" : (each.type ?? "any value");
    if (low === undefined) return kind;
    return high === undefined ? `${kind} of at least ${low}` : `${kind} from ${low} to ${high}`;
  }).filter((each, n, every) => every.indexOf(each) === n).join(" or ");
}

function propertiesOf(document, schema) {
  const every = variants(document, schema);
  const found = every.map((each) => (each.type === "array" ? resolved(document, each.items ?? {})
    : each));
  return found.find((each) => each.properties);
}

/** Return an example: the schema's own, its default, or the examples of its fields but errors. */
function sampleOf(document, given, depth = 0) {
  const schema = variants(document, given)[0] ?? {};
  const own = given.example ?? given.examples?.[0] ?? schema.examples?.[0] ?? given.default
    ?? schema.default ?? schema.const ?? schema.enum?.[0];
  if (own !== undefined && own !== null) return own;
  if (schema.type === "array") {
    return depth < DEEPEST ? [sampleOf(document, schema.items ?? {}, depth + 1)] : [];
  }
  if (schema.properties) {
    return Object.fromEntries(Object.entries(schema.properties)
      .filter(([name, each]) => name !== "error" && depth < DEEPEST && !each[BESIDE_NAME])
      .map(([name, each]) => [name, sampleOf(document, each, depth + 1)]));
  }
  const samples = { string: "text", integer: schema.minimum ?? 0, number: schema.minimum ?? 0.5,
    boolean: true, object: {} };
  return samples[schema.type] ?? null;
}

/** Return the alternatives of a schema without null. */
function variants(document, given) {
  const schema = resolved(document, given);
  const parts = schema.properties ? [schema] : (schema.anyOf ?? schema.oneOf ?? [schema]);
  return parts.map((each) => resolved(document, each)).filter(({ type }) => type !== "null");
}

function resolved(document, schema) {
  if (!schema.$ref) return schema;
  const { $ref: name, ...rest } = schema;
  return { ...document.components.schemas[name.split("/").pop()], ...rest };
}

/** Return a text with the parts between backquotes as code. */
function prose(text) {
  return text.split("`").map((part, n) => (n % 2 ? el("code", {}, part) : part));
}

function words(values) {
  return el("ul", { class: "values" }, values.map((each) => el("li", {}, el("code", {}, each))));
}

function textOf(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

function titled(tag) {
  return tag.charAt(0).toUpperCase() + tag.slice(1);
}
