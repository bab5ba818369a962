#!lua flags=allow-oom
--- Gives scheduled and ready messages a new due time.
-- ARGV   1 caller, 2 number of its call, 3 due ("+ms" from now, or ms since 1970), then ids
-- Reply  for each id the state it is in now; only "scheduled" and "ready" ones were changed, "" is unknown; NEWER
-- Safe   CALLS is written first; every other key that is written was read. A far message leaves its bucket.
--@include keys
local meta = redis.call('HMGET', META, 'format', 'far')
local far = tonumber(meta[2] or '') or 0
--@include format
--@include now
--@include wake
--@include write
--@include far
--@include once
local before = done_before(ARGV[1], ARGV[2])
if before then return words(before) end
local at = due_at(ARGV[3])
local ids = { unpack(ARGV, 4) }
local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
local due = redis.call('ZMSCORE', DUE, unpack(ids))
local dead = redis.call('ZMSCORE', DEAD, unpack(ids))
local states, moved, unfolded = {}, {}, {}
for i, id in ipairs(ids) do
  local at_far, b
  if far > 0 and not due[i] and not dead[i] then at_far, b = far_due(id) end
  if due[i] or at_far or unfolded[id] then
    states[i] = at > now and 'scheduled' or 'ready'
    moved[#moved + 1] = at
    moved[#moved + 1] = id
    if at_far then
      unfold(b, at_far, id)
      unfolded[id] = true
    end
  elseif dead[i] then
    states[i] = 'dead'
  else
    states[i] = redis.call('HEXISTS', MSG, id) == 1 and 'leased' or ''
  end
end
if #moved > 0 and comes_first(head, at) then redis.call('ZCARD', WAKE) end
if meta[1] then note_call(ARGV[1], ARGV[2], listed(states)) end
if #moved > 0 then
  wake(head, at)
  redis.call('ZADD', DUE, unpack(moved))
  write_far()
end
return states
