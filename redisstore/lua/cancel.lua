#!lua flags=allow-oom
--- Removes live messages in any state. A leased one leaves a tombstone, which tells its lease of the cancel; its
--- successor is removed with it.
-- ARGV   1 session, 2 request number, 3 "1" to start the messages' dedup windows, then ids
-- Reply  for each id the state it was in, or ""; NEWER. Ends once about MAX_READ bytes were read: the client calls
--        again for the other ids
-- Safe   SESSIONS is written first; every other key was read before.
--@include keys
--@include format
--@include clock
--@include record_changes
--@include buckets
--@include read_envelope
--@include session
--@include reply_states
--@flow
--@include leave_lanes
--@end
local format, packed = unpack(redis.call('HMGET', META, 'format', 'packed_messages'))
if not writes(format) then return NEWER end
local now = read_clock()
local previous = previous_reply(ARGV[1], ARGV[2])
if previous then return decode_states(previous) end
local keep = ARGV[3] == '1'
local due = redis.call('ZMSCORE', DUE, unpack(ARGV, 4))
local dead = redis.call('ZMSCORE', DEAD, unpack(ARGV, 4))
local records = redis.call('HMGET', RECORDS, unpack(ARGV, 4))
if keep then redis.call('ZCARD', DEDUP) end
local buckets, changes = open_buckets(packed), new_record_changes()
local states, deleted, due_removed, dead_removed, windows, seen, bytes = {}, {}, {}, {}, {}, {}, 0
--@flow
local lanes = leave_lanes()
--@end
for i = 1, #ARGV - 3 do
  local id = ARGV[i + 3]
  if keep then bytes = bytes + redis.call('HSTRLEN', MESSAGES, id) end
--@flow
  local sorted = due[i] and tonumber(due[i]) >= SORTED
  if sorted then bytes = bytes + redis.call('HSTRLEN', MESSAGES, id) end
--@end
  if i > 1 and bytes + buckets.searched > MAX_READ then break end
  local state = ''
  if not seen[id] and redis.call('HEXISTS', MESSAGES, id) == 1 then
    seen[id] = true
    local epoch, _, _, refcount = parse_record(records[i])
    deleted[#deleted + 1] = id
    if keep then
      local _, _, _, window = read_envelope(redis.call('HGET', MESSAGES, id))
      if window and window > 0 then
        windows[#windows + 1], windows[#windows + 2] = now + window, id
      end
    end
    if due[i] then
--@plain
      state = tonumber(due[i]) > now and 'scheduled' or 'ready'
--@end
--@flow
      state = due_in(due[i]) > now and 'scheduled' or 'ready'
      if sorted then lanes.add(id, due[i], redis.call('HGET', MESSAGES, id)) end
--@end
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
        changes.cancel(id, records[i])
      end
    end
    if state ~= 'leased' and records[i] then changes.remove(id, epoch, refcount) end
--@flow
    if state ~= 'leased' then lanes.gone(id) end
--@end
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
write('ZADD', DEDUP, windows)
changes.write()
--@flow
lanes.write(now)
--@end
return states
