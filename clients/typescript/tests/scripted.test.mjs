// The client against a server on 127.0.0.1 whose answers are scripted.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { Darkroom, DarkroomError, imageBlob } from "../dist/index.js";

let answers = [];
let requests = [];
let url = "";
const quick = { tries: 4, firstPause: 1, longestPause: 2 };
const client = (settings = {}) => new Darkroom({ baseUrl: url, retries: quick, ...settings });

const server = createServer((request, answer) => {
  const pieces = [];
  request.on("data", (piece) => pieces.push(piece));
  request.on("end", () => {
    const body = Buffer.concat(pieces).toString("latin1");
    requests.push({ path: request.url, headers: request.headers, body });
    (answers.shift() ?? good)(answer, body);
  });
});

const images = (body) => (body.match(/name="(files|urls)"/g) ?? []).length;

function good(answer, body) {
  answer.writeHead(200, { "Content-Type": "application/x-ndjson" });
  for (let index = 0; index < images(body); index++) {
    answer.write(`${JSON.stringify({ index, status: "ok" })}\n`);
  }
  answer.end();
}

const problem = (status, code, headers = {}) => (answer) => {
  answer.writeHead(status, { "Content-Type": "application/problem+json", ...headers });
  answer.end(JSON.stringify({ type: "t", title: code, status, code, detail: `it is ${code}` }));
};

before(async () => {
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  url = `http://127.0.0.1:${server.address().port}`;
});
after(() => {
  server.closeAllConnections();
  server.close();
});

async function all(records) {
  const found = [];
  for await (const each of records) found.push(each);
  return found;
}

function script(...given) {
  answers = given;
  requests = [];
}

const bytes = new Uint8Array([1, 2, 3]);

test("images are sent in groups, and results count all images", async () => {
  script();
  const found = await all(client({ imagesPerRequest: 2 }).classify(Array(5).fill(bytes)));
  assert.deepEqual(found.map((each) => each.index), [0, 1, 2, 3, 4]);
  assert.deepEqual(requests.map((each) => images(each.body)), [2, 2, 1]);
});

test("files, URLs and ids may be mixed, and images may come asynchronously", async () => {
  script();
  async function* given() {
    yield new Blob([bytes]);
    yield "https://example.com/a.jpg";
    yield { id: "mine", image: bytes.buffer };
  }
  const found = await all(client().classify(given(), { top_k: 3 }));
  assert.deepEqual(found.map((each) => each.id), [undefined, undefined, "mine"]);
  const [{ body }] = requests;
  assert.match(body, /name="top_k"\r\n\r\n3\r\n/);
  assert.ok(body.indexOf("image-0") < body.indexOf("example.com"));
});

test("a refusal with Retry-After is tried again", async () => {
  script(problem(503, "overloaded", { "Retry-After": "0" }));
  assert.equal((await all(client().classify([bytes]))).length, 1);
  assert.equal(requests.length, 2);
  assert.equal(images(requests[1].body), 1);
});

test("a proxy that limits its clients, and a late server, are asked again", async () => {
  const page = (answer) => answer.writeHead(429, { "Content-Type": "text/html" }).end("<h1>no</h1>");
  script(page, problem(504, "deadline_exceeded"));
  assert.equal((await all(client().classify([bytes]))).length, 1);
  assert.equal(requests.length, 3);
});

test("a refusal without Retry-After rejects at once", async () => {
  script(problem(503, "weights_missing", { "X-Request-ID": "one" }));
  await assert.rejects(all(client().classify([bytes])), (error) => {
    assert.ok(error instanceof DarkroomError);
    assert.equal(error.problem.code, "weights_missing");
    assert.equal(error.requestId, "one");
    return true;
  });
  assert.equal(requests.length, 1);
});

test("the last refusal rejects", async () => {
  script(...Array(4).fill(problem(429, "rate_limited", { "Retry-After": "0" })));
  await assert.rejects(all(client().classify([bytes])), /rate_limited/);
  assert.equal(requests.length, 4);
});

test("the page of a proxy becomes a problem with its status", async () => {
  script((answer) => answer.writeHead(404, { "Content-Type": "text/html" }).end("<h1>no</h1>"));
  await assert.rejects(client().filters(), (error) => error.problem.status === 404);
});

test("an answer that lacks images rejects after those that came", async () => {
  script((answer) => answer.writeHead(200).end('{"index": 1, "status": "ok"}\n'));
  const found = [];
  await assert.rejects(async () => {
    for await (const each of client().classify([bytes, bytes])) found.push(each.index);
  }, /1 of 2 images/);
  assert.deepEqual(found, [1]);
});

test("a caller can give up while the client waits", async () => {
  const controller = new AbortController();
  script((answer) => {
    problem(503, "overloaded", { "Retry-After": "100" })(answer);
    controller.abort();
  });
  const waiting = all(client().classify([bytes], { signal: controller.signal }));
  await assert.rejects(waiting, { name: "AbortError" });
  assert.equal(requests.length, 1);
});

test("the key, the deadline and chains are sent", async () => {
  script();
  const keyed = client({ apiKey: "secret" });
  await all(keyed.filter([bytes], ["sepia", { name: "flip" }], { deadlineMs: 5000 }));
  const [{ headers, body }] = requests;
  assert.equal(headers.authorization, "Bearer secret");
  assert.equal(headers["x-deadline-ms"], "5000");
  assert.match(body, /\[{"name":"sepia"},{"name":"flip"}\]/);
});

test("lines may come in any pieces", async () => {
  const text = Buffer.from('{"index": 0, "status": "ok", "source": "é\u2028"}\n\n');
  script((answer) => {
    answer.writeHead(200);
    for (const byte of text) answer.write(Uint8Array.of(byte));
    answer.end();
  });
  assert.equal((await all(client().classify([bytes])))[0].source, "é\u2028");
});

test("the image of a record becomes a file", async () => {
  const blob = imageBlob({ media_type: "image/png", width: 1, height: 1, bytes: 3, data: "YWJj" });
  assert.equal(blob.type, "image/png");
  assert.equal(await blob.text(), "abc");
});

test("a job is not made twice after a lost connection, unless it has a key", async () => {
  const lost = (answer) => answer.destroy();
  const headers = { "Content-Type": "application/x-ndjson" };
  const make = (more) =>
    client().api.POST("/jobs", {
      params: { query: { operation: "classify" } },
      headers: { ...headers, ...more },
      body: '{"url": "https://example.com/a.jpg"}\n',
      bodySerializer: (text) => text,
    });
  script(lost);
  await assert.rejects(make({}));
  assert.equal(requests.length, 1);
  script(lost, problem(503, "overloaded", { "Retry-After": "0" }));
  await make({ "Idempotency-Key": "mine" });
  assert.equal(requests.length, 3);
});

const records = (from, to, extra = {}) => (answer) => {
  answer.writeHead(200, { "Content-Type": "application/x-ndjson", ...extra });
  for (let index = from; index < to; index++) {
    answer.write(`${JSON.stringify({ index, status: "ok" })}\n`);
  }
};
const ended = (write) => (answer) => {
  write(answer);
  answer.end();
};
const broken = (write) => (answer) => {
  write(answer);
  setTimeout(() => answer.destroy(), 50);
};

test("an archive is the body, and its options are in the query", async () => {
  requests = [];
  answers = [ended(records(0, 3))];
  const found = await all(client().classifyArchive(new Uint8Array([80, 75]), { top_k: 2 }));
  assert.deepEqual(found.map((each) => each.index), [0, 1, 2]);
  assert.equal(requests[0].path, "/classify?top_k=2");
  assert.equal(requests[0].body, "PK");
  assert.equal(requests[0].headers.accept, "application/x-ndjson");
});

test("an archive that is refused rejects with its problem", async () => {
  answers = [problem(422, "bad_archive")];
  await assert.rejects(client().filterToZip(new Uint8Array(2), "invert"), (error) => {
    assert.equal(error.problem.code, "bad_archive");
    return true;
  });
});

test("a job is made once, with one key for all tries", async () => {
  requests = [];
  const made = (answer) => {
    answer.writeHead(202, { "Content-Type": "application/json" });
    answer.end(JSON.stringify({ id: "a", state: "queued" }));
  };
  answers = [(answer) => answer.destroy(), problem(503, "overloaded", { "Retry-After": "0" }), made];
  const items = [{ id: "1", url: "https://a/" }, { url: "https://b/" }];
  const job = await client().createJob(items, "filter", { ops: [{ name: "invert" }] });
  assert.equal(job.id, "a");
  assert.equal(new Set(requests.map((each) => each.headers["idempotency-key"])).size, 1);
  const query = new URL(requests[2].path, url).searchParams;
  assert.equal(query.get("ops"), '[{"name":"invert"}]');
  assert.equal(query.get("operation"), "filter");
  assert.equal(requests[2].body, '{"id":"1","url":"https://a/"}\n{"url":"https://b/"}\n');
});

test("results of a job go on after a broken connection where they were", async () => {
  requests = [];
  answers = [broken(records(0, 2)), ended(records(2, 4))];
  const found = await all(client().jobResults("a"));
  assert.deepEqual(found.map((each) => each.index), [0, 1, 2, 3]);
  const offsets = requests.map((each) => new URL(each.path, url).searchParams.get("offset"));
  assert.deepEqual(offsets, ["0", "2"]);
});

test("results of a job go on where a server that stopped has ended them", async () => {
  requests = [];
  const state = (name) => ({ "X-Job-State": name });
  answers = [ended(records(0, 2, state("running"))), ended(records(2, 4, state("succeeded")))];
  const found = await all(client().jobResults("a"));
  assert.deepEqual(found.map((each) => each.index), [0, 1, 2, 3]);
  assert.equal(requests.length, 2);
});
