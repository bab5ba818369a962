#!lua flags=allow-oom
--- Removes messages that are still exactly as they were read. Messages that have changed since or are leased stay.
-- ARGV   1 session, 2 request number
--        then for each message: id, value in MSG, due in ms or "", time of death in ms or "", record or ""
-- Reply  positions (from 1) of the messages that were not removed; NEWER
-- Safe   CALLS is written first; every other key that is written was read before. It reads only as much as the
--        client sent.
--@include keys
local meta = redis.call('HMGET', META, 'format', 'far')
local packed = tonumber(meta[2] or '') or 0
--@include format
--@include now
--@include record
--@include write
--@include buckets
--@include session
local previous = previous_reply(ARGV[1], ARGV[2])
if previous then return decode_positions(previous) end
local ids = {}
for a = 3, #ARGV, 5 do ids[#ids + 1] = ARGV[a] end
local due = redis.call('ZMSCORE', DUE, unpack(ids))
local dead = redis.call('ZMSCORE', DEAD, unpack(ids))
local records = redis.call('HMGET', TRIES, unpack(ids))

local function same(score, text)
  return tonumber(score or '') == tonumber(text)
end

local left, deleted, due_removed, dead_removed = {}, {}, {}, {}
for i, id in ipairs(ids) do
  local a = 5 * i - 2
  local length = redis.call('HSTRLEN', MSG, id)
  local stored = length == #ARGV[a + 1] and redis.call('HGET', MSG, id)
  local at, b
  if packed > 0 and stored and not due[i] and not dead[i] then at, b = packed_due(id, stored) end
  if stored == ARGV[a + 1] and (due[i] or dead[i] or at)
    and same(due[i] or at, ARGV[a + 2]) and same(dead[i], ARGV[a + 3])
    and (records[i] or '') == ARGV[a + 4] then
    deleted[#deleted + 1] = id
    if due[i] then due_removed[#due_removed + 1] = id end
    if dead[i] then dead_removed[#dead_removed + 1] = id end
    if at then remove_line(b, at, id) end
    local epoch, _, _, refcount = parse(records[i])
    if records[i] then set_record(id, tombstone(epoch, refcount)) end
  else
    left[#left + 1] = i
  end
end
if meta[1] then record_request(ARGV[1], ARGV[2], encode_list(left)) end
write('HDEL', MSG, deleted)
write('ZREM', DUE, due_removed)
write('ZREM', DEAD, dead_removed)
write_buckets()
write_records()
return left
