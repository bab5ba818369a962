#!lua flags=allow-oom
--- Removes messages that are still exactly as they were read. Messages that have changed since or are leased stay.
-- ARGV   1 session, 2 request number
--        then for each message: id, value in MESSAGES, due in ms or "", time of death in ms or "", record or ""
-- Reply  positions (from 1) of the messages that were not removed; NEWER
-- Safe   SESSIONS is written first; every other key that is written was read before. It reads only as much as the
--        client sent.
--@include keys
--@include format
--@include clock
--@include record_changes
--@include buckets
--@include session
--@include reply_positions
--@flow
--@include leave_lanes
--@end
local format, packed = unpack(redis.call('HMGET', META, 'format', 'packed_messages'))
if not writes(format) then return NEWER end
local now = read_clock()
local previous = previous_reply(ARGV[1], ARGV[2])
if previous then return decode_positions(previous) end
local ids = {}
for a = 3, #ARGV, 5 do ids[#ids + 1] = ARGV[a] end
local due = redis.call('ZMSCORE', DUE, unpack(ids))
local dead = redis.call('ZMSCORE', DEAD, unpack(ids))
local records = redis.call('HMGET', RECORDS, unpack(ids))
local buckets, changes = open_buckets(packed), new_record_changes()

local function same(score, text)
--@plain
  return tonumber(score or '') == tonumber(text)
--@end
--@flow
  return due_in(score) == tonumber(text)
--@end
end

--@flow
local lanes = leave_lanes()
--@end
local left, deleted, due_removed, dead_removed = {}, {}, {}, {}
for i, id in ipairs(ids) do
  local a = 5 * i - 2
  local length = redis.call('HSTRLEN', MESSAGES, id)
  local stored = length == #ARGV[a + 1] and redis.call('HGET', MESSAGES, id)
  local at, b
  if buckets.packed > 0 and stored and not due[i] and not dead[i] then at, b = buckets.find(id, stored) end
  if stored == ARGV[a + 1] and (due[i] or dead[i] or at)
    and same(due[i] or at, ARGV[a + 2]) and same(dead[i], ARGV[a + 3])
    and (records[i] or '') == ARGV[a + 4] then
    deleted[#deleted + 1] = id
    if due[i] then due_removed[#due_removed + 1] = id end
--@flow
    lanes.add(id, due[i], stored)
    lanes.gone(id)
--@end
    if dead[i] then dead_removed[#dead_removed + 1] = id end
    if at then buckets.remove_line(b, at, id) end
    local epoch, _, _, refcount = parse_record(records[i])
    if records[i] then changes.remove(id, epoch, refcount) end
  else
    left[#left + 1] = i
  end
end
local any_grouped = redis.call('ZCARD', GROUPS) > 0
if format then record_request(ARGV[1], ARGV[2], now, encode_positions(left)) end
write('HDEL', MESSAGES, deleted)
if any_grouped then write('ZREM', GROUPS, deleted) end
write('ZREM', DUE, due_removed)
write('ZREM', DEAD, dead_removed)
buckets.write()
changes.write()
--@flow
lanes.write(now)
--@end
return left
