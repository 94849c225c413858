-- Bring back what was left lying: dead workers' jobs, due retries, passed deadlines.
--
-- Invariant: a job is moved from one place to the next in one step, so a reaper may die anywhere
-- without losing or doubling one. There is no lock, only a ticket that expires by itself: it keeps a
-- fleet from doing this more often than once in its time, and nothing depends on it.
-- Recovered jobs stand at the front in the order in which they were claimed.
--
-- KEYS  the lists
-- ARGV  ticket in milliseconds (0: always), max deliveries, most jobs of a kind in one go,
--       seconds a job may stay between a stock worker's pop and its start
-- Returns {recovered, promoted, {{queue, waited} ...}, {queue ...}}

local ticket, max_deliveries, most, stuck = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local recovered, promoted, expired, quarantined = 0, 0, {}, {}

if ticket > 0 and not redis.call('SET', 'coolhead:reap', '1', 'NX', 'PX', ticket) then return {0, 0, {}, {}} end

local function due(key)
  return redis.call('ZRANGEBYSCORE', key, '-inf', now_text, 'LIMIT', 0, most)
end

local function status_of(id)
  return redis.call('HGET', job_key(id), 'status') or ''
end

local function expire_due(q)
  for _, id in ipairs(due('rq:deadline:' .. q)) do
    local status = status_of(id)
    redis.call('ZREM', 'rq:deadline:' .. q, id)
    if status == 'queued' or status == 'scheduled' then
      redis.call('LREM', 'rq:queue:' .. q, 1, id)
      redis.call('ZREM', 'rq:scheduled:' .. q, id)
      expired[#expired + 1] = {q, expire(q, id)}
    end
  end
end

local function promote_due(q)
  for _, id in ipairs(due('rq:scheduled:' .. q)) do
    redis.call('ZREM', 'rq:scheduled:' .. q, id)
    if status_of(id) == 'scheduled' then
      enqueue(q, id, 'RPUSH')
      promoted = promoted + 1
    end
  end
end

-- Latest claims first, so that pushing each to the front leaves the earliest in front. When there
-- are more than `most`, the next pass puts its earlier ones in front of these.
local function expired_leases(q)
  local leases = {}
  for _, member in ipairs(redis.call('ZREVRANGEBYSCORE', 'rq:lease:' .. q, now_text, '-inf', 'LIMIT', 0, most)) do
    local id, ex = string.match(member, '^(.*):([^:]*)$')
    local created = tonumber(redis.call('HGET', 'rq:execution:' .. member, 'created_at') or '') or 0
    leases[#leases + 1] = {id = id, ex = ex, created = created}
  end
  table.sort(leases, function(a, b)
    if a.created ~= b.created then return a.created > b.created end
    return a.ex > b.ex
  end)
  return leases
end

local function recover_expired(q)
  for _, lease in ipairs(expired_leases(q)) do
    local id = lease.id
    drop_lease(q, id, lease.ex)
    -- Any other status: settled, canceled or failed by someone else in the meantime.
    if status_of(id) == 'started' and redis.call('ZCARD', 'rq:executions:' .. id) == 0 then
      local deliveries = tonumber(redis.call('HGET', job_key(id), 'deliveries') or '') or 0
      if deliveries >= max_deliveries then
        quarantine(q, id, deliveries)
        quarantined[#quarantined + 1] = q
      else
        enqueue(q, id, 'LPUSH')
        recovered = recovered + 1
      end
    end
  end
end

-- A stock worker moves an id to the intermediate list and then starts it; killed in between, the id
-- stays. RQ would fail it after a minute or more; it never ran, so it goes back.
local function unstick(q)
  local list = 'rq:queue:' .. q .. ':intermediate'
  local seen, there = list .. ':seen', {}
  for _, id in ipairs(redis.call('LRANGE', list, 0, tonumber(most) - 1)) do
    there[id] = true
    local since = tonumber(redis.call('ZSCORE', seen, id) or '')
    if not since then
      redis.call('ZADD', seen, now_text, id)
    elseif now - since >= stuck then
      redis.call('LREM', list, 1, id)
      redis.call('ZREM', seen, id)
      if status_of(id) == 'queued' then
        enqueue(q, id, 'LPUSH')
        recovered = recovered + 1
      end
    end
  end
  for _, id in ipairs(redis.call('ZRANGE', seen, 0, -1)) do
    if not there[id] then redis.call('ZREM', seen, id) end
  end
end

for _, list in ipairs(KEYS) do
  local q = queue_of(list)
  expire_due(q) -- before promotion: a retry whose deadline has passed must not run again
  promote_due(q)
  recover_expired(q)
  unstick(q)
end
return {recovered, promoted, expired, quarantined}
