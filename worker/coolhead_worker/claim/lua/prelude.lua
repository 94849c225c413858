-- Put in front of every script of this room: the server's time, and the ways a job leaves a lease.
--
-- Invariant: the only clock is the server's, read once, so all writes of one script carry one time.
-- Key names are RQ's own layout (2.12 and 3.0). They are built from job ids, so all of them must
-- live on one primary: more primaries are used as independent shards, not as a cluster.

local GRACE_S = 600            -- RQ's own cleanup may touch a job only this long after its lease
local RESULT_TTL_S = 500       -- for jobs that name none; RQ's default
local FAILURE_TTL_S = 604800   -- for jobs that name none; RQ's default of a year fills a server
local WAKE_TOKENS = 64

-- A script is not undone when a command in it is refused: a user who may pop but not lease would
-- lose jobs. So nothing starts unless everything is allowed. (Servers before 7.0 can't be asked.)
for _, command in ipairs({
  {'LPOP', 'rq:queue:x'}, {'LPUSH', 'rq:queue:x', 'x'}, {'RPUSH', 'rq:queue:x', 'x'}, {'LREM', 'rq:queue:x', '1', 'x'},
  {'LRANGE', 'rq:queue:x', '0', '1'}, {'EXISTS', 'rq:job:x'}, {'HGET', 'rq:job:x', 'x'}, {'HMGET', 'rq:job:x', 'x'},
  {'HSET', 'rq:job:x', 'x', 'x'}, {'HDEL', 'rq:job:x', 'x'}, {'HINCRBY', 'rq:job:x', 'x', '1'},
  {'EXPIRE', 'rq:job:x', '1'}, {'PEXPIRE', 'rq:job:x', '1'}, {'PERSIST', 'rq:job:x'}, {'DEL', 'rq:job:x'},
  {'XADD', 'rq:results:x', '*', 'x', 'x'}, {'ZADD', 'rq:lease:x', '1', 'x'}, {'ZREM', 'rq:lease:x', 'x'},
  {'ZSCORE', 'rq:lease:x', 'x'}, {'ZCARD', 'rq:lease:x'}, {'ZRANGE', 'rq:lease:x', '0', '1'},
  {'ZRANGEBYSCORE', 'rq:lease:x', '0', '1'}, {'ZREVRANGEBYSCORE', 'rq:lease:x', '1', '0'},
  {'SET', 'coolhead:reap', '1'}, {'RPUSH', 'coolhead:wake', '1'}, {'LTRIM', 'coolhead:wake', '0', '1'},
  {'DEL', 'coolhead:wake'},
}) do
  if redis.acl_check_cmd and not redis.acl_check_cmd(unpack(command)) then
    return redis.error_reply('NOPERM this user may not ' .. command[1] .. ' ' .. command[2])
  end
end

-- A server without memory refuses a script whose first write may need some. What workers do drains
-- it, so the first write here is one that never needs any.
redis.call('DEL', 'coolhead:nothing')

local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1e6

-- Numbers go to the server as text: its own conversion keeps 14 digits in some versions.
local function exactly(number)
  return string.format('%.6f', number)
end

-- RFC 3339 as RQ writes it. Days to a date: era of 400 years, years that begin in March.
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

local now_text = exactly(now)
local now_utc = utc(tonumber(clock[1]), tonumber(clock[2]))

local function job_key(id)
  return 'rq:job:' .. id
end

local function queue_of(list_key)
  return string.sub(list_key, #'rq:queue:' + 1)
end

local function wake()
  redis.call('RPUSH', 'coolhead:wake', '1')
  redis.call('LTRIM', 'coolhead:wake', -WAKE_TOKENS, -1)
end

-- Both sets must know the execution: ours is emptied by a reap, RQ's by a stock cleanup.
local function holds(q, id, ex)
  local member = id .. ':' .. ex
  return redis.call('ZSCORE', 'rq:lease:' .. q, member) and redis.call('ZSCORE', 'rq:wip:' .. q, member)
end

local function drop_lease(q, id, ex)
  local member = id .. ':' .. ex
  redis.call('ZREM', 'rq:lease:' .. q, member)
  redis.call('ZREM', 'rq:wip:' .. q, member)
  redis.call('ZREM', 'rq:executions:' .. id, ex)
  redis.call('DEL', 'rq:execution:' .. member)
end

-- rq:deadline holds exactly the jobs that wait: a claim takes a job out of it, this puts it back.
local function waits_again(q, id, status)
  redis.call('HSET', job_key(id), 'status', status, 'worker_name', '', 'node', '', 'started_at', '')
  local deadline = redis.call('HGET', job_key(id), 'deadline_at')
  if deadline and deadline ~= '' then redis.call('ZADD', 'rq:deadline:' .. q, deadline, id) end
end

-- Into its queue: 'LPUSH' for the front, 'RPUSH' for the end.
local function enqueue(q, id, push)
  waits_again(q, id, 'queued')
  redis.call(push, 'rq:queue:' .. q, id)
  wake()
end

-- An ended job lives for ttl seconds in a registry of RQ: -1 for ever, 0 not at all.
local function keep(id, registry, ttl)
  if ttl == 0 then
    redis.call('DEL', job_key(id), 'rq:results:' .. id)
  elseif ttl < 0 then
    redis.call('PERSIST', job_key(id))
    redis.call('PERSIST', 'rq:results:' .. id)
    redis.call('ZADD', registry, '+inf', id)
  else
    redis.call('EXPIRE', job_key(id), ttl)
    redis.call('EXPIRE', 'rq:results:' .. id, ttl)
    redis.call('ZADD', registry, exactly(now + ttl), id)
  end
end

local function ttl_of(id, field, default)
  return math.floor(tonumber(redis.call('HGET', job_key(id), field) or '') or default)
end
