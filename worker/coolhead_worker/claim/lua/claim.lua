-- Take up to `limit` jobs from the front of the lists, in the order of the lists.
--
-- Invariant: an id that leaves a list ends up in exactly one place: leased to this worker (status
-- started, one execution, one lease, one delivery more), ended (expired, quarantined), back at the
-- front, or nowhere because its job has ended, runs elsewhere or no longer exists.
-- A job that two workers did not survive is given out alone, so that a third death harms no
-- neighbour. Jobs come back in the order of the queue; their execution ids sort in that order.
-- The lists that are found empty leave no wake token behind; work that is left behind leaves one.
--
-- KEYS  the lists, best lane first
-- ARGV  worker, node, execution prefix, limit, lease in seconds, max deliveries
-- Returns {suspended, {job ...}, {{queue, waited} ...}, {queue ...}}

local worker, node, prefix, limit = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local lease, max_deliveries = tonumber(ARGV[5]), tonumber(ARGV[6])
local SUSPECT = 2
local LOOKED_MAX = limit + 512 -- dead ids cost time, and a script stops everybody else

if redis.call('EXISTS', 'rq:suspended') == 1 then return {1, {}, {}, {}} end

local claimed, expired, quarantined, looked = {}, {}, {}, 0

local function runnable(id, status)
  if status == 'finished' or status == 'failed' or status == 'canceled' or status == 'stopped' then return false end
  return status ~= 'started' or redis.call('ZCARD', 'rq:executions:' .. id) == 0
end

-- An ended job that waits again was put there by a person: its history does not count.
local function start_afresh(q, id, deadline)
  redis.call('HDEL', job_key(id), 'outcome', 'error_code', 'error', 'deliveries', 'attempts', 'defers', 'defer_reason')
  redis.call('HSET', job_key(id), 'first_enqueued', now_text, 'ended_at', '')
  redis.call('ZREM', 'rq:quarantine:' .. q, id)
  if deadline and deadline <= now then redis.call('HDEL', job_key(id), 'deadline_at') end
end

local function read(q, id)
  local f = redis.call('HMGET', job_key(id), 'status', 'data', 'deliveries', 'attempts', 'defers',
    'first_enqueued', 'deadline_at', 'result_ttl', 'failure_ttl', 'outcome')
  local job = {
    status = f[1], data = f[2], deliveries = tonumber(f[3] or '') or 0, attempts = tonumber(f[4] or '') or 0,
    defers = tonumber(f[5] or '') or 0, first = tonumber(f[6] or ''), deadline = tonumber(f[7] or ''),
    result_ttl = math.floor(tonumber(f[8] or '') or RESULT_TTL_S),
    failure_ttl = math.floor(tonumber(f[9] or '') or FAILURE_TTL_S),
  }
  if f[10] and job.status == 'queued' then
    start_afresh(q, id, job.deadline)
    job.deliveries, job.attempts, job.defers, job.first = 0, 0, 0, now
    if job.deadline and job.deadline <= now then job.deadline = nil end
  end
  return job
end

local function lend(q, id, job)
  local ex = prefix .. string.format('%03x', #claimed)
  local member, execution = id .. ':' .. ex, 'rq:execution:' .. id .. ':' .. ex
  local hold, hold_ms = exactly(now + lease + GRACE_S), math.floor((lease + GRACE_S) * 1000)
  redis.call('HSET', execution, 'id', ex, 'job_id', id, 'created_at', now_text, 'last_heartbeat', now_text,
    'worker_name', worker)
  redis.call('PEXPIRE', execution, hold_ms)
  redis.call('ZADD', 'rq:executions:' .. id, hold, ex)
  redis.call('PEXPIRE', 'rq:executions:' .. id, hold_ms)
  redis.call('ZADD', 'rq:wip:' .. q, hold, member)
  redis.call('ZADD', 'rq:lease:' .. q, exactly(now + lease), member)
  redis.call('ZREM', 'rq:deadline:' .. q, id)
  local first = exactly(job.first or now)
  redis.call('HSET', job_key(id), 'status', 'started', 'started_at', now_utc, 'last_heartbeat', now_utc,
    'worker_name', worker, 'node', node, 'first_enqueued', first)
  redis.call('HINCRBY', job_key(id), 'deliveries', 1)
  redis.call('PERSIST', job_key(id))
  claimed[#claimed + 1] = {q, id, ex, job.data or '', job.deliveries + 1, job.attempts, job.defers, first, now_text,
    job.result_ttl, job.failure_ttl}
end

-- Returns true when the batch ends here.
local function consider(list, q, id)
  local job = read(q, id)
  if not (job.status or job.data) or not runnable(id, job.status) then return false end
  if job.deadline and job.deadline <= now then
    expired[#expired + 1] = {q, expire(q, id)}
    return false
  end
  if job.deliveries >= max_deliveries then
    quarantine(q, id, job.deliveries)
    quarantined[#quarantined + 1] = q
    return false
  end
  local alone = job.deliveries >= SUSPECT
  if alone and #claimed > 0 then
    redis.call('LPUSH', list, id)
    wake()
  else
    lend(q, id, job)
  end
  return alone
end

local left_behind = false
for _, list in ipairs(KEYS) do
  local q = queue_of(list)
  while not left_behind do
    local id = #claimed < limit and looked < LOOKED_MAX and redis.call('LPOP', list)
    if not id then break end
    looked = looked + 1
    left_behind = consider(list, q, id)
  end
end

if looked >= LOOKED_MAX then
  wake()
elseif #claimed < limit and not left_behind then
  redis.call('DEL', 'coolhead:wake')
end
return {0, claimed, expired, quarantined}
