-- Show a node to others: RQ's registry of workers, the node's own hash, the list of nodes seen.
--
-- Invariant: whatever was forgotten (an expired hash, a flushed server) is whole again after one
-- call, because every call writes everything; a worker that has been replaced on its node never
-- overwrites or removes what its successor wrote.
--
-- ARGV  what ("enter" | "publish" | "leave"), JSON of {node, worker, queues, birth, rq, status}
--       where rq and status are flat lists of fields and values
-- Returns 1 when written, 0 when another worker of this node has entered since

local NODE_TTL_S = 15
local WORKER_TTL_S = 90
local REMEMBERED_S = 86400

local what, me = ARGV[1], cjson.decode(ARGV[2])
local worker_key, node_key = 'rq:worker:' .. me.worker, 'coolhead:node:' .. me.node

local function unregister(key)
  redis.call('SREM', 'rq:workers', key)
  for _, q in ipairs(me.queues) do redis.call('SREM', 'rq:workers:' .. q, key) end
end

-- Earlier workers of this node by the field `node`, which stock workers do not have; and those of
-- anybody whose hash has ended, as RQ does itself.
local function drop_predecessors()
  for _, key in ipairs(redis.call('SMEMBERS', 'rq:workers')) do
    local over = redis.call('EXISTS', key) == 0 or redis.call('HGET', key, 'node') == me.node
    if over and key ~= worker_key then
      unregister(key)
      redis.call('DEL', key)
    end
  end
end

local function show()
  redis.call('HSET', worker_key, 'last_heartbeat', now_utc, 'node', me.node, unpack(me.rq))
  redis.call('HSETNX', worker_key, 'birth', now_utc)
  redis.call('EXPIRE', worker_key, WORKER_TTL_S)
  redis.call('SADD', 'rq:workers', worker_key)
  for _, q in ipairs(me.queues) do redis.call('SADD', 'rq:workers:' .. q, worker_key) end
  redis.call('HSET', node_key, unpack(me.status))
  redis.call('EXPIRE', node_key, NODE_TTL_S)
  redis.call('ZADD', 'coolhead:nodes', now_text, me.node)
  redis.call('ZREMRANGEBYSCORE', 'coolhead:nodes', '-inf', exactly(now - REMEMBERED_S))
end

if what == 'enter' then
  drop_predecessors()
else
  local shown = redis.call('HGET', node_key, 'worker')
  if shown and shown ~= me.worker then
    unregister(worker_key)
    redis.call('DEL', worker_key)
    return 0
  end
end

if what ~= 'leave' then
  show()
  return 1
end
unregister(worker_key)
redis.call('DEL', node_key, worker_key)
return 1
