-- Put many jobs of one lane into its queue.
--
-- Invariant: an id whose hash exists, in whatever status, is never queued again, so the same job
-- sent twice (also by a client that lost the reply) runs once; a hash and its place in the queue
-- come into being together; nothing is written for a job that is refused, nor for anybody when the
-- user may not run one of the commands. The only clock is the server's. Key names are RQ's own layout
-- (2.12 and 3.0).
--
-- KEYS  the list of the queue
-- ARGV  lane, most jobs the list may hold (0: any number), RQ's timeout, result_ttl, failure_ttl in
--       seconds, then for each job: id, digest, deadline in seconds ('' for none), description, data
-- Returns one word for each job: "new" | "old" | "conflict" | "full"

local list, lane = KEYS[1], ARGV[1]
local cap, timeout, result_ttl, failure_ttl = tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
local FIRST_JOB, PER_JOB = 6, 5
local WAKE_TOKENS = 64

local queue = string.sub(list, #'rq:queue:' + 1)

-- Without this a user who may write the hash but not the list would leave a job that never runs.
for _, command in ipairs({
  {'TIME'}, {'LLEN', list}, {'EXISTS', 'rq:job:x'}, {'HGET', 'rq:job:x', 'x'}, {'HSET', 'rq:job:x', 'x', 'x'},
  {'EXPIRE', 'rq:results:x', '0'}, {'ZADD', 'rq:deadline:' .. queue, '0', 'x'}, {'RPUSH', list, 'x'},
  {'SADD', 'rq:queues', 'x'}, {'HINCRBY', 'coolhead:enqueued', 'x', '1'}, {'RPUSH', 'coolhead:wake', 'x'},
  {'LTRIM', 'coolhead:wake', '0', '0'},
}) do
  if redis.acl_check_cmd and not redis.acl_check_cmd(unpack(command)) then
    return redis.error_reply('NOPERM this user may not ' .. command[1] .. ' ' .. (command[2] or ''))
  end
end

local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1e6

-- Numbers go to the server as text: its own conversion keeps 14 digits in some versions.
local function exactly(number)
  return string.format('%.6f', number)
end

-- RFC 3339 as RQ writes it. Days to a date: eras of 400 years, years that begin in March.
local function utc(seconds, micros)
  local floor = math.floor
  local days, rest = floor(seconds / 86400) + 719468, seconds % 86400
  local era = floor(days / 146097)
  local doe = days - era * 146097
  local yoe = floor((doe - floor(doe / 1460) + floor(doe / 36524) - floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + floor(yoe / 4) - floor(yoe / 100))
  local moon = floor((5 * doy + 2) / 153)
  local day = doy - floor((153 * moon + 2) / 5) + 1
  local month = moon < 10 and moon + 3 or moon - 9
  local year = yoe + era * 400 + (month <= 2 and 1 or 0)
  return string.format('%04d-%02d-%02dT%02d:%02d:%02d.%06dZ', year, month, day,
    floor(rest / 3600), floor(rest / 60) % 60, rest % 60, micros)
end

local now_text, now_utc = exactly(now), utc(tonumber(clock[1]), tonumber(clock[2]))
local length, added, answers = redis.call('LLEN', list), 0, {}

local function add(key, id, digest, deadline, description, data)
  redis.call('HSET', key, 'status', 'queued', 'origin', queue, 'data', data, 'description', description,
    'created_at', now_utc, 'enqueued_at', now_utc, 'started_at', '', 'ended_at', '', 'worker_name', '',
    'timeout', timeout, 'result_ttl', result_ttl, 'failure_ttl', failure_ttl,
    'digest', digest, 'first_enqueued', now_text, 'deliveries', 0, 'attempts', 0, 'defers', 0)
  redis.call('EXPIRE', 'rq:results:' .. id, 0) -- an answer whose hash was deleted belongs to nobody
  if deadline ~= '' then
    local at = exactly(now + tonumber(deadline))
    redis.call('HSET', key, 'deadline_at', at)
    redis.call('ZADD', 'rq:deadline:' .. queue, at, id)
  end
  redis.call('RPUSH', list, id)
  added = added + 1
end

local function consider(id, digest, ...)
  local key = 'rq:job:' .. id
  if redis.call('EXISTS', key) == 1 then
    return redis.call('HGET', key, 'digest') == digest and 'old' or 'conflict'
  end
  if cap > 0 and length + added >= cap then return 'full' end
  add(key, id, digest, ...)
  return 'new'
end

for i = FIRST_JOB, #ARGV, PER_JOB do
  answers[#answers + 1] = consider(unpack(ARGV, i, i + PER_JOB - 1))
end

if added > 0 then
  redis.call('SADD', 'rq:queues', 'rq:queue:' .. queue)
  redis.call('HINCRBY', 'coolhead:enqueued', lane, added)
  local tokens = {}
  for i = 1, math.min(added, WAKE_TOKENS) do tokens[i] = '1' end
  redis.call('RPUSH', 'coolhead:wake', unpack(tokens))
  redis.call('LTRIM', 'coolhead:wake', -WAKE_TOKENS, -1)
end
return answers
