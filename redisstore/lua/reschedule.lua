#!lua flags=allow-oom
--- Reschedules scheduled and ready messages.
-- ARGV   1 session, 2 request number, 3 due ("+ms" from now, or ms since 1970), then ids
-- Reply  for each id its state now; only "scheduled" and "ready" ones were changed, "" is unknown; NEWER. Ends once
--        about MAX_READ bytes were read: the client calls again for the other ids
-- Safe   SESSIONS is written first; every other key that is written was read before. A packed message leaves its
--        bucket.
--@include keys
--@include format
--@include clock
--@include due
--@include earliest
--@include waiting
--@include buckets
--@include session
--@include reply_states
--@flow
--@include leave_lanes
--@end
local format, packed = unpack(redis.call('HMGET', META, 'format', 'packed_messages'))
if not writes(format) then return NEWER end
local now, now_us = read_clock()
local previous = previous_reply(ARGV[1], ARGV[2])
if previous then return decode_states(previous) end
local at = due_at(now_us, ARGV[3])
local ids = { unpack(ARGV, 4) }
local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
local due = redis.call('ZMSCORE', DUE, unpack(ids))
local dead = redis.call('ZMSCORE', DEAD, unpack(ids))
local buckets = open_buckets(packed)
local states, moved, removed_ids = {}, {}, {}
--@flow
local lanes, bytes = leave_lanes(), 0
--@end
for i, id in ipairs(ids) do
--@plain
  if buckets.searched > MAX_READ then break end
--@end
--@flow
  local sorted = due[i] and tonumber(due[i]) >= SORTED
  if sorted then bytes = bytes + redis.call('HSTRLEN', MESSAGES, id) end
  if i > 1 and buckets.searched + bytes > MAX_READ then break end
  if sorted then lanes.add(id, due[i], redis.call('HGET', MESSAGES, id)) end
--@end
  local packed_at, b
  if buckets.packed > 0 and not due[i] and not dead[i] then packed_at, b = buckets.find(id) end
  if due[i] or packed_at or removed_ids[id] then
    states[i] = at > now and 'scheduled' or 'ready'
    moved[#moved + 1], moved[#moved + 2] = at, id
    if packed_at then
      buckets.remove_line(b, packed_at, id)
      removed_ids[id] = true
    end
  elseif dead[i] then
    states[i] = 'dead'
  else
    states[i] = redis.call('HEXISTS', MESSAGES, id) == 1 and 'leased' or ''
  end
end
local anyone = #moved > 0 and is_earliest(head, at) and redis.call('ZCARD', WAKE) > 0
if format then record_request(ARGV[1], ARGV[2], now, encode_states(states)) end
if #moved > 0 then
  if anyone then notify(at, now) end
  redis.call('ZADD', DUE, unpack(moved))
  buckets.write()
--@flow
  lanes.write(now)
--@end
end
return states
