#!lua flags=allow-oom
--- Removes live messages in any state. A leased one leaves a tombstone, from which its lease learns of the cancel.
-- ARGV   1 session, 2 request number, then ids
-- Reply  for each id the state it was in, or ""; NEWER
-- Safe   CALLS is written first; every other key was read before.
--
--@include keys
local meta = redis.call('HMGET', META, 'format', 'far')
local packed = tonumber(meta[2] or '') or 0
--@include format
--@include now
--@include record
--@include write
--@include session
--@include buckets
local previous = previous_reply(ARGV[1], ARGV[2])
if previous then return decode_words(previous) end
local due = redis.call('ZMSCORE', DUE, unpack(ARGV, 3))
local dead = redis.call('ZMSCORE', DEAD, unpack(ARGV, 3))
local records = redis.call('HMGET', TRIES, unpack(ARGV, 3))
local states, deleted, due_removed, dead_removed, seen = {}, {}, {}, {}, {}
for i = 1, #ARGV - 2 do
  local id = ARGV[i + 2]
  local state = ''
  if not seen[id] and redis.call('HEXISTS', MSG, id) == 1 then
    seen[id] = true
    local epoch, _, _, refcount = parse(records[i])
    deleted[#deleted + 1] = id
    if due[i] then
      state = tonumber(due[i]) > now and 'scheduled' or 'ready'
      due_removed[#due_removed + 1] = id
    elseif dead[i] then
      state = 'dead'
      dead_removed[#dead_removed + 1] = id
    else
      local at, b
      if packed > 0 then at, b = packed_due(id) end
      if at then
        state = at > now and 'scheduled' or 'ready'
        remove_line(b, at, id)
      else
        state = 'leased'
        epoch, refcount = epoch + 1, refcount + 1
      end
    end
    if state == 'leased' or records[i] then set_record(id, tombstone(epoch, refcount)) end
  end
  states[i] = state
end
if meta[1] then record_request(ARGV[1], ARGV[2], encode_list(states)) end
write('HDEL', MSG, deleted)
write('ZREM', DUE, due_removed)
write_buckets()
write('ZREM', DEAD, dead_removed)
write_records()
return states
