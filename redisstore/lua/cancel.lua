#!lua flags=allow-oom
--- Removes living messages, whatever their state. A leased one leaves a tombstone, by which its lease learns.
-- ARGV   ids
-- Reply  for each id the state it was in, or ""; NEWER
-- Safe   every key that is written was read.
--@include keys
local meta = redis.call('HMGET', META, 'format')
--@include format
--@include now
--@include record
--@include write
local due = redis.call('ZMSCORE', DUE, unpack(ARGV))
local dead = redis.call('ZMSCORE', DEAD, unpack(ARGV))
local records = redis.call('HMGET', TRIES, unpack(ARGV))
local states, gone, undue, undead, seen = {}, {}, {}, {}, {}
for i, id in ipairs(ARGV) do
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
      state = 'leased'
      epoch, pins = epoch + 1, pins + 1
    end
    if state == 'leased' or records[i] then keep(id, tombstone(epoch, pins)) end
  end
  states[i] = state
end
write('HDEL', MSG, gone)
write('ZREM', DUE, undue)
write('ZREM', DEAD, undead)
write_tries()
return states
