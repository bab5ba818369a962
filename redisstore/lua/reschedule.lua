#!lua flags=allow-oom
--- Gives scheduled and ready messages a new due time.
-- ARGV   1 due ("+ms" from now, or ms since 1970), then ids
-- Reply  for each id the state it is in now; only "scheduled" and "ready" ones were changed, "" is unknown; NEWER
-- Safe   WAKE is written first; DUE was read.
--@include keys
local meta = redis.call('HMGET', META, 'format')
--@include format
--@include now
--@include wake
local at = due_at(ARGV[1])
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
