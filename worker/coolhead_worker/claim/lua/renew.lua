-- Prolong the leases of jobs that are still being worked on.
--
-- Invariant: a lease that has been taken away stays taken away: nothing is created, only what still
-- stands is moved into the future. A job whose hash has gone is lost too.
--
-- ARGV  lease in seconds, JSON list of {q, id, ex}
-- Returns the execution ids that are lost

local lease = tonumber(ARGV[1])
local hold, hold_ms = exactly(now + lease + GRACE_S), math.floor((lease + GRACE_S) * 1000)
local lost = {}

local function renew(s)
  local member, execution = s.id .. ':' .. s.ex, 'rq:execution:' .. s.id .. ':' .. s.ex
  redis.call('ZADD', 'rq:lease:' .. s.q, 'XX', exactly(now + lease), member)
  redis.call('ZADD', 'rq:wip:' .. s.q, 'XX', hold, member)
  redis.call('ZADD', 'rq:executions:' .. s.id, 'XX', hold, s.ex)
  redis.call('PEXPIRE', 'rq:executions:' .. s.id, hold_ms)
  redis.call('HSET', job_key(s.id), 'last_heartbeat', now_utc)
  if redis.call('EXISTS', execution) == 1 then redis.call('HSET', execution, 'last_heartbeat', now_text) end
  redis.call('PEXPIRE', execution, hold_ms)
end

for _, s in ipairs(cjson.decode(ARGV[2])) do
  if holds(s.q, s.id, s.ex) and redis.call('EXISTS', job_key(s.id)) == 1 then
    renew(s)
  else
    lost[#lost + 1] = s.ex
  end
end
return lost
