#!lua flags=allow-oom
--- Removes living messages, whatever their state. A leased one leaves a tombstone, by which its lease learns.
-- ARGV   1 caller, 2 number of its call, then ids
-- Reply  for each id the state it was in, or ""; NEWER
-- Safe   CALLS is written first; every other key was read.
--@include keys
local meta = redis.call('HMGET', META, 'format', 'far')
local far = tonumber(meta[2] or '') or 0
--@include format
--@include now
--@include record
--@include write
--@include once
--@include far
local before = done_before(ARGV[1], ARGV[2])
if before then return words(before) end
local due = redis.call('ZMSCORE', DUE, unpack(ARGV, 3))
local dead = redis.call('ZMSCORE', DEAD, unpack(ARGV, 3))
local records = redis.call('HMGET', TRIES, unpack(ARGV, 3))
local states, gone, undue, undead, seen = {}, {}, {}, {}, {}
for i = 1, #ARGV - 2 do
  local id = ARGV[i + 2]
  local state = ''
  if not seen[id] and redis.call('HEXISTS', MSG, id) == 1 then
    seen[id] = true
    local epoch, _, _, pins = parse(records[i])
    gone[#gone + 1] = id
    if due[i] then
      state = tonumber(due[i]) > now and 'scheduled' or 'ready'
      undue[#undue + 1] = id
    elseif dead[i] then
      state = 'dead'
      undead[#undead + 1] = id
    else
      local at, b
      if far > 0 then at, b = far_due(id) end
      if at then
        state = at > now and 'scheduled' or 'ready'
        unfold(b, at, id)
      else
        state = 'leased'
        epoch, pins = epoch + 1, pins + 1
      end
    end
    if state == 'leased' or records[i] then keep(id, tombstone(epoch, pins)) end
  end
  states[i] = state
end
if meta[1] then note_call(ARGV[1], ARGV[2], listed(states)) end
write('HDEL', MSG, gone)
write('ZREM', DUE, undue)
write_far()
write('ZREM', DEAD, undead)
write_tries()
return states
