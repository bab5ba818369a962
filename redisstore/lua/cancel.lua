#!lua flags=allow-oom
--- Removes live messages in any state. A leased one leaves a tombstone, from which its lease learns of the cancel.
-- ARGV   1 session, 2 request number, then ids
-- Reply  for each id the state it was in, or ""; NEWER
-- Safe   SESSIONS is written first; every other key was read before.
--@include keys
--@include clock
--@include record_changes
--@include buckets
--@include session
local format, packed = unpack(redis.call('HMGET', META, 'format', 'packed_messages'))
if format and format ~= FORMAT then return NEWER end
local now = read_clock()
local previous = previous_reply(ARGV[1], ARGV[2])
if previous then return decode_states(previous) end
local due = redis.call('ZMSCORE', DUE, unpack(ARGV, 3))
local dead = redis.call('ZMSCORE', DEAD, unpack(ARGV, 3))
local records = redis.call('HMGET', RECORDS, unpack(ARGV, 3))
local buckets, changes = open_buckets(packed), new_record_changes()
local states, deleted, due_removed, dead_removed, seen = {}, {}, {}, {}, {}
for i = 1, #ARGV - 2 do
  local id = ARGV[i + 2]
  local state = ''
  if not seen[id] and redis.call('HEXISTS', MESSAGES, id) == 1 then
    seen[id] = true
    local epoch, _, _, refcount = parse_record(records[i])
    deleted[#deleted + 1] = id
    if due[i] then
      state = tonumber(due[i]) > now and 'scheduled' or 'ready'
      due_removed[#due_removed + 1] = id
    elseif dead[i] then
      state = 'dead'
      dead_removed[#dead_removed + 1] = id
    else
      local at, b
      if buckets.packed > 0 then at, b = buckets.find(id) end
      if at then
        state = at > now and 'scheduled' or 'ready'
        buckets.remove_line(b, at, id)
      else
        state = 'leased'
        changes.cancel(id, epoch, refcount)
      end
    end
    if state ~= 'leased' and records[i] then changes.remove(id, epoch, refcount) end
  end
  states[i] = state
end
local any_grouped = redis.call('ZCARD', GROUPS) > 0
if format then record_request(ARGV[1], ARGV[2], now, encode_states(states)) end
write('HDEL', MESSAGES, deleted)
if any_grouped then write('ZREM', GROUPS, deleted) end
write('ZREM', DUE, due_removed)
buckets.write()
write('ZREM', DEAD, dead_removed)
changes.write()
return states
