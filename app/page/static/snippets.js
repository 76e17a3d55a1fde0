/**
 * The program that does what the page does, as text to copy: curl, Python and JavaScript.
 *
 * A request is `{ path, fields, image, saved, keyed }`; `fields` are pairs of option and text. If
 * it needs an API key, the program takes it from the environment: the text may be shown to others.
 * Functions here are pure. Names of files are quoted for the language they appear in.
 */

/** The environment variable in which programs to copy expect the API key. */
const KEY = "DARKROOM_API_KEY";

/** Return the snippet of a request in `language`: "curl", "python" or "javascript". */
export function snippet(language, base, request) {
  return { curl, python, javascript }[language](base, request);
}

/** Return what a request to the server is, from a chain, options and the chosen image. */
export function requestOf(kind, { ops, options, network, image, keyed }) {
  const fields = kind === "filter" ? [] : Object.entries(network);
  if (kind === "filter") fields.push(["ops", JSON.stringify(ops)]);
  if (kind === "process") fields.push(["versions", JSON.stringify(ops.length ? [{ ops }] : [])]);
  if (kind !== "classify") {
    for (const [name, value] of Object.entries(options)) fields.push([name, String(value)]);
  }
  return { path: kind, fields, image, saved: kind === "filter", keyed };
}

function curl(base, { path, fields, image, saved, keyed }) {
  const source = image.url ? shell(`urls=${image.url}`) : shell(`files=@${curlName(image.name)}`);
  const lines = [
    `curl ${shell(base + path)}`,
    ...(keyed ? [`-H "Authorization: Bearer $${KEY}"`] : []),
    image.url ? `--form-string ${source}` : `-F ${source}`,
    ...fields.map(([name, text]) => `--form-string ${shell(`${name}=${text}`)}`),
  ];
  if (saved) lines.push(`-o ${shell(savedName(image, formatOf(fields)))}`);
  return lines.join(" \\\n  ");
}

function python(base, { path, fields, image, saved, keyed }) {
  const entries = fields.map(([name, text]) => `        ${quoted(name)}: ${quoted(text)},\n`);
  const urls = `        "urls": [${quoted(image.url ?? "")}],\n`;
  const sent = image.url
    ? `    json={\n${urls}${entries.join("")}    },\n`
    : `    files={"files": open(${quoted(image.name)}, "rb")},\n` +
      (entries.length ? `    data={\n${entries.join("")}    },\n` : "");
  const key = keyed ? `    headers={"Authorization": f"Bearer {os.environ['${KEY}']}"},\n` : "";
  const after = saved
    ? `open(${quoted(savedName(image, formatOf(fields)))}, "wb").write(response.content)`
    : "print(response.json())";
  return (
    `${keyed ? "import os\n\n" : ""}import requests\n\n` +
    `response = requests.post(\n    ${quoted(base + path)},\n${key}${sent})\n` +
    `response.raise_for_status()\n${after}\n`
  );
}

function javascript(base, { path, fields, image, saved, keyed }) {
  const first = image.url
    ? `form.append("urls", ${quoted(image.url)});`
    : `form.append("files", file); // a File, for instance of an <input type="file">`;
  const rest = fields.map(([name, text]) => `form.append(${quoted(name)}, ${quoted(text)});`);
  const key = keyed ? "\n  headers: { Authorization: `Bearer ${key}` }, // your API key\n " : "";
  const asked = `{ method: "POST", body: form${key ? "," : ""}${key} }`;
  return [
    "const form = new FormData();",
    first,
    ...rest,
    `const response = await fetch(${quoted(base + path)}, ${asked});`,
    "if (!response.ok) throw new Error((await response.json()).detail);",
    saved ? "const picture = await response.blob();" : "const answer = await response.json();",
    "",
  ].join("\n");
}

function formatOf(fields) {
  return fields.find(([name]) => name === "format")?.[1];
}

/** Quote for a POSIX shell. */
function shell(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/** Quote the name of a file for curl's own -F, in which ";" and "," would begin options. */
function curlName(name) {
  return /[;,"\\]/.test(name) ? `"${name.replace(/["\\]/g, "\\$&")}"` : name;
}

/** Quote for Python and JavaScript, whose escapes agree for what JSON makes of a text. */
function quoted(text) {
  return JSON.stringify(text);
}

/** Return the name under which a filtered image is saved; no `format` keeps the image's own. */
export function savedName(image, format) {
  const stem = image.name.replace(/\.[^.]*$/, "") || "picture";
  const own = image.name.match(/\.([a-z0-9]+)$/i)?.[1].toLowerCase() ?? "jpg";
  const kept = ["jpg", "jpeg", "png", "webp", "avif"].includes(own) ? own : "png";
  return `${stem}-filtered.${format === "jpeg" ? "jpg" : (format ?? kept)}`;
}
