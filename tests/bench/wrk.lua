-- Sends the prepared requests of a file in turn, each thread from a place of its own, and looks at
-- every answer: a status that is not 200 and a record with an error inside a 200 are counted.
-- The file holds, for each request, a line with its length and then its bytes.
-- wrk -s wrk.lua URL -- FILE THREADS; the last line is JSON, its times in microseconds.

local threads = {}

function setup(thread)
  thread:set("number", #threads)
  table.insert(threads, thread)
end

function init(args)
  local file = assert(io.open(args[1], "rb"))
  requests, refused, failed = {}, 0, 0
  local length = file:read("*l")
  while length do
    requests[#requests + 1] = file:read(tonumber(length))
    length = file:read("*l")
  end
  file:close()
  turn = math.floor(#requests * number / tonumber(args[2]))
end

function request()
  turn = turn % #requests + 1
  return requests[turn]
end

function response(status, headers, body)
  if status ~= 200 then
    refused = refused + 1
  elseif body:find('"status":"error"', 1, true) then
    failed = failed + 1
  end
end

function done(summary, latency)
  local refused, failed, e = 0, 0, summary.errors
  for _, thread in ipairs(threads) do
    refused = refused + thread:get("refused")
    failed = failed + thread:get("failed")
  end
  io.write(string.format(
    '{"requests": %d, "us": %d, "p50_us": %d, "p99_us": %d, "max_us": %d, "not_200": %d, '
      .. '"with_failed_images": %d, "socket_errors": %d, "timeouts": %d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    latency.max, refused, failed, e.connect + e.read + e.write, e.timeout))
end
