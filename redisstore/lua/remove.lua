#!lua flags=allow-oom
--- Removes messages that are still exactly as they were read; what has changed since, or is leased, is left alone.
-- ARGV   1 caller, 2 number of its call
--        then for each message: id, value in MSG, due in ms or "", time of death in ms or "", record or ""
-- Reply  positions (from 1) of the messages that were not removed; NEWER
-- Safe   CALLS is written first; every other key that is written was read. As much is read as the caller sent.
--@include keys
local meta = redis.call('HMGET', META, 'format', 'far')
local far = tonumber(meta[2] or '') or 0
--@include format
--@include now
--@include record
--@include write
--@include far
--@include once
local before = done_before(ARGV[1], ARGV[2])
if before then return positions(before) end
local ids = {}
for a = 3, #ARGV, 5 do ids[#ids + 1] = ARGV[a] end
local due = redis.call('ZMSCORE', DUE, unpack(ids))
local dead = redis.call('ZMSCORE', DEAD, unpack(ids))
local records = redis.call('HMGET', TRIES, unpack(ids))

local function same(score, text)
  return tonumber(score or '') == tonumber(text)
end

local left, gone, undue, undead = {}, {}, {}, {}
for i, id in ipairs(ids) do
  local a = 5 * i - 2
  local length = redis.call('HSTRLEN', MSG, id)
  local stored = length == #ARGV[a + 1] and redis.call('HGET', MSG, id)
  local at, b
  if far > 0 and stored and not due[i] and not dead[i] then at, b = far_due(id, stored) end
  if stored == ARGV[a + 1] and (due[i] or dead[i] or at) and same(due[i] or at, ARGV[a + 2]) and same(dead[i], ARGV[a + 3])
    and (records[i] or '') == ARGV[a + 4] then
    gone[#gone + 1] = id
    if due[i] then undue[#undue + 1] = id end
    if dead[i] then undead[#undead + 1] = id end
    if at then unfold(b, at, id) end
    local epoch, _, _, pins = parse(records[i])
    if records[i] then keep(id, tombstone(epoch, pins)) end
  else
    left[#left + 1] = i
  end
end
if meta[1] then note_call(ARGV[1], ARGV[2], listed(left)) end
write('HDEL', MSG, gone)
write('ZREM', DUE, undue)
write('ZREM', DEAD, undead)
write_far()
write_tries()
return left
