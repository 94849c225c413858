-- Put behind the prelude where jobs may fail: RQ's form of a failure, written without a worker.
--
-- Invariant: a failed job has status, outcome, code and a one-line text in its hash and the same in
-- its result stream, is in RQ's failed registry, and waits nowhere.

-- RQ keeps the text of a failure as base64 of a zlib stream. A stream of one stored block needs no
-- compressor: two bytes of header, the block's length and its complement, the text, Adler-32.
local function zlib_stored(text)
  local a, b = 1, 0
  for i = 1, #text do
    a = (a + string.byte(text, i)) % 65521
    b = (b + a) % 65521
  end
  local low, high = #text % 256, math.floor(#text / 256)
  return string.char(0x78, 0x01, 0x01, low, high, 255 - low, 255 - high) .. text
    .. string.char(math.floor(b / 256), b % 256, math.floor(a / 256), a % 256)
end

local DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'

local function base64(bytes)
  local out = {}
  for i = 1, #bytes, 3 do
    local a, b, c = string.byte(bytes, i, i + 2)
    local bits = a * 65536 + (b or 0) * 256 + (c or 0)
    for place, weight in ipairs({262144, 4096, 64, 1}) do
      local digit = math.floor(bits / weight) % 64 + 1
      local padded = (place == 3 and not b) or (place == 4 and not c)
      out[#out + 1] = padded and '=' or string.sub(DIGITS, digit, digit)
    end
  end
  return table.concat(out)
end

local function failure_text(code, message)
  return base64(zlib_stored(string.sub(code .. ': ' .. message, 1, 65535)))
end

-- `more` holds further fields of the stream entry, such as the execution.
local function fail(q, id, worker, outcome, code, message, more)
  redis.call('ZREM', 'rq:deadline:' .. q, id)
  redis.call('HSET', job_key(id), 'status', 'failed', 'ended_at', now_utc,
    'outcome', outcome, 'error_code', code, 'error', message)
  redis.call('XADD', 'rq:results:' .. id, 'MAXLEN', '~', 10, '*', 'type', 2, 'worker_name', worker,
    'exc_string', failure_text(code, message), 'outcome', outcome, 'error_code', code, 'error', message,
    unpack(more or {}))
  keep(id, 'rq:failed:' .. q, ttl_of(id, 'failure_ttl', FAILURE_TTL_S))
end

-- Returns the seconds the job had waited, as text.
local function expire(q, id)
  local first, reason, code = unpack(redis.call('HMGET', job_key(id), 'first_enqueued', 'defer_reason', 'error_code'))
  local waited = now - (tonumber(first or '') or now)
  local message = string.format('waited %.1f s, past its deadline', waited)
  if reason and reason ~= '' then
    message = message .. '; last put back for: ' .. reason
  elseif code and code ~= '' then
    message = message .. '; last try failed with ' .. code
  else
    message = message .. '; no node took it'
  end
  fail(q, id, '', 'expired', 'JobExpired', message)
  return exactly(waited)
end

local function quarantine(q, id, deliveries)
  local worker = redis.call('HGET', job_key(id), 'worker_name') or ''
  local message = string.format('given out %d times, and its worker ended each time', deliveries)
  if worker ~= '' then message = message .. '; the last was ' .. worker end
  fail(q, id, worker, 'quarantined', 'JobQuarantined', message)
  redis.call('ZADD', 'rq:quarantine:' .. q, now_text, id)
end
