#!lua flags=allow-oom
--- Gives scheduled and ready messages a new due time.
-- ARGV   1 due ("+ms" from now, or ms since 1970), then ids
-- Reply  for each id the state it is in now; only "scheduled" and "ready" ones were changed, "" is unknown; -2
-- Safe   WAKE is written first; DUE was read.
-- The keys of a queue, the same nine in every script (see keys.go).
local DUE, MSG, LEASE, EXPIRY, TRIES, DEAD, DONE, META, WAKE = unpack(KEYS)
local meta = redis.call('HMGET', META, 'format')
-- A queue of another format is not touched.
if meta[1] and meta[1] ~= "1" then return -2 end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
-- wake puts the marker for one waiter when due is earlier than the queue's earliest message, which is head.
local function wake(head, due)
  if due and (not head[2] or due < tonumber(head[2])) then
    redis.call('ZADD', WAKE, due, 'm')
  end
end
local at = tonumber(ARGV[1])
if string.byte(ARGV[1]) == 43 then at = at + now end
local ids = { unpack(ARGV, 2) }
local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
local due = redis.call('ZMSCORE', DUE, unpack(ids))
local dead = redis.call('ZMSCORE', DEAD, unpack(ids))
local states, moved = {}, {}
for i, id in ipairs(ids) do
  if due[i] then
    states[i] = at > now and 'scheduled' or 'ready'
    moved[#moved + 1] = at
    moved[#moved + 1] = id
  elseif dead[i] then
    states[i] = 'dead'
  else
    states[i] = redis.call('HEXISTS', MSG, id) == 1 and 'leased' or ''
  end
end
if #moved > 0 then
  wake(head, at)
  redis.call('ZADD', DUE, unpack(moved))
end
return states
