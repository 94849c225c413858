-- Write what became of claimed jobs.
--
-- Invariant: an entry is written only while its execution still holds the lease and the job is
-- still started; writing ends the lease in the same step. So of all workers that ever held a job
-- exactly one settles each delivery, and the others ("lost") write nothing about it. A settlement
-- that is sent again after its reply was lost is told "settled" and changes nothing.
--
-- ARGV  worker, JSON list of {verb, q, id, ex, at, ...} in the order of writing: released jobs come
--       last first, because each is put in front of the one before
-- Returns {"settled" | "lost" | "gone" ...} in the order given

local worker = ARGV[1]
local finished, failed = 0, 0

local function execution(s)
  return {'execution_id', s.ex, 'execution_started_at', s.at, 'execution_ended_at', now_text}
end

local write = {}

function write.succeeded(s)
  redis.call('HSET', job_key(s.id), 'status', 'finished', 'ended_at', now_utc, 'outcome', 'succeeded')
  redis.call('HDEL', job_key(s.id), 'error_code', 'error')
  redis.call('ZREM', 'rq:deadline:' .. s.q, s.id)
  redis.call('XADD', 'rq:results:' .. s.id, 'MAXLEN', '~', 10, '*', 'type', 1, 'worker_name', worker,
    'return_value', s.value, 'outcome', 'succeeded', unpack(execution(s)))
  keep(s.id, 'rq:finished:' .. s.q, ttl_of(s.id, 'result_ttl', RESULT_TTL_S))
  finished = finished + 1
end

function write.failed(s)
  fail(s.q, s.id, worker, s.outcome, s.code, s.message, execution(s))
  failed = failed + 1
end

function write.retried(s)
  redis.call('HINCRBY', job_key(s.id), 'attempts', 1)
  redis.call('HINCRBY', job_key(s.id), 'deliveries', -1)
  redis.call('HSET', job_key(s.id), 'error_code', s.code, 'error', s.message)
  redis.call('XADD', 'rq:results:' .. s.id, 'MAXLEN', '~', 10, '*', 'type', 4, 'worker_name', worker,
    'exc_string', failure_text(s.code, s.message), 'outcome', 'transient', 'error_code', s.code,
    'error', s.message, unpack(execution(s)))
  redis.call('EXPIRE', 'rq:results:' .. s.id, math.max(1, ttl_of(s.id, 'failure_ttl', FAILURE_TTL_S)))
  if s.delay <= 0 then return enqueue(s.q, s.id, 'RPUSH') end
  waits_again(s.q, s.id, 'scheduled')
  redis.call('ZADD', 'rq:scheduled:' .. s.q, exactly(now + s.delay), s.id)
end

function write.released(s)
  redis.call('HINCRBY', job_key(s.id), 'deliveries', -1)
  redis.call('HINCRBY', job_key(s.id), 'defers', 1)
  redis.call('HSET', job_key(s.id), 'defer_reason', s.reason)
  enqueue(s.q, s.id, 'LPUSH')
end

local function settle(s)
  if redis.call('EXISTS', job_key(s.id)) == 0 then
    drop_lease(s.q, s.id, s.ex)
    return 'gone'
  end
  local status, settled_by = unpack(redis.call('HMGET', job_key(s.id), 'status', 'settled_by'))
  if settled_by == s.ex then return 'settled' end
  if not holds(s.q, s.id, s.ex) then return 'lost' end
  drop_lease(s.q, s.id, s.ex)
  if status ~= 'started' then return 'lost' end -- canceled by hand, or failed by a stock cleanup
  redis.call('HSET', job_key(s.id), 'settled_by', s.ex)
  write[s.verb](s)
  return 'settled'
end

local answers = {}
for _, s in ipairs(cjson.decode(ARGV[2])) do answers[#answers + 1] = settle(s) end

-- Only an existing hash: an expired one would come back without a time to live.
local registered = 'rq:worker:' .. worker
if finished + failed > 0 and redis.call('EXISTS', registered) == 1 then
  redis.call('HINCRBY', registered, 'successful_job_count', finished)
  redis.call('HINCRBY', registered, 'failed_job_count', failed)
end
return answers
