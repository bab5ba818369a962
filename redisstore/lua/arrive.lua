#!lua
--- Adds what a parcel from another sub-queue has, as depart.lua took it out there.
-- KEYS   the keys of every script, then the two of sends with a key and the outbox
-- ARGV   1 session, 2 request number
--        3 "1" if the queue's name is registered and the queue may be created
--        4 name of the other sub-queue, 5 number of the parcel, 6 what it has
-- Reply  1, also if it has arrived before; UNREGISTERED; NEWER
-- Safe   no allow-oom: a full server refuses the whole script. SESSIONS is written first; every other key was read
--        before, BUCKETS, BUCKET_STARTS and BUCKET_COUNTS if a message is packed. OUTBOX has the number of the last
--        parcel from each other sub-queue, under a colon and its name, until rename.lua ends this generation.
--@include keys
--@include format
--@include clock
--@include record_changes
--@include earliest
--@include waiting
--@include session
--@include existing
--@include restored
--@include update_meta
--@include once
--@flow
--@include arrivals
--@include arrive_keys
--@end
local ONCE, OLD_ONCE, OUTBOX = unpack(KEYS, QUEUE_KEYS + 1)
local format, max_envelope_bytes, inspect_envelopes, packed =
  unpack(redis.call('HMGET', META, 'format', 'max_envelope_bytes', 'inspect_envelopes', 'packed_messages'))
if not writes(format) then return NEWER end
if not format and ARGV[3] ~= '1' then return UNREGISTERED end
local now, now_us = read_clock()
--@flow
read_slots()
--@end
local last = tonumber(redis.call('HGET', OUTBOX, ':' .. ARGV[4]) or '') or 0
if previous_reply(ARGV[1], ARGV[2]) then
  if format then redis.call('HSET', META, 'format', FORMAT) end -- see safely.go
  return 1
end
if last >= tonumber(ARGV[5]) then
  record_request(ARGV[1], ARGV[2], now)
  return 1
end
--@plain
local messages, windows, sends = unpack(cmsgpack.unpack(ARGV[6]))
--@end
--@flow
local messages, windows, sends, placed, held, keyed = unpack(cmsgpack.unpack(ARGV[6])) -- see depart.lua
placed, held, keyed = placed or {}, held or {}, keyed or {} -- there are none in a parcel of a plain queue
local arrivals, holding, holds = new_arrivals(now_us), {}, {} -- holding: letters and keys by id; holds: by key
for i = 1, #held, 3 do holding[held[i] ] = { held[i + 2], held[i + 1] } end
--@end
local ids, longest, inspect = {}, 0, '0'
for i = 1, #messages, 7 do
  local value = messages[i + 1]
  local flags = string.byte(value) or 128
  ids[#ids + 1] = messages[i]
  longest = math.max(longest, #value + 7)
  if flags >= 128 or flags % 8 > 0 then inspect = '1' end
end
local stored, records = {}, nil
if ids[1] then stored, records = read_existing(ids, tonumber(max_envelope_bytes or 0)) end
local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
redis.call('ZCARD', DEAD)
redis.call('ZCARD', DEDUP)

local restored = new_restored(open_buckets(packed), new_record_changes(), now)
for i, id in ipairs(ids) do
  local value, at, died, attempts, delivered, rest = unpack(messages, 7 * i - 5, 7 * i)
  local sort
  if not stored[i] then
--@flow
    local letter, name = unpack(holding[id] or {})
    if letter and (letter == 'd') == (died ~= '') then holds[name] = { letter, id, tonumber(died) } end
    sort = placed[id] and function(stored_value) return arrivals.add(id, stored_value, tonumber(placed[id])) end
--@end
    restored.add(id, value, at, died, attempts, delivered, rest, records and records[i], sort)
  end
end
restored.pack()
local keys, ends = {}, {}
for i = 1, #sends, 2 do keys[#keys + 1] = sends[i] end
local once = keys[1] and open_once(ONCE, OLD_ONCE, keys, now)
for i = 1, #windows, 2 do
  ends[i], ends[i + 1] = windows[i + 1], windows[i]
end
local first = restored.first
local anyone = is_earliest(head, first) and redis.call('ZCARD', WAKE) > 0
record_request(ARGV[1], ARGV[2], now)
redis.call('HSET', OUTBOX, ':' .. ARGV[4], ARGV[5])
if anyone then notify(first, now) end
restored.write()
for i = 1, #ends, 2 do redis.call('ZADD', DEDUP, 'GT', ends[i], ends[i + 1]) end
for i in ipairs(keys) do once.keep(i, sends[2 * i]) end
if once then once.write() end
--@flow
if redis.call('HEXISTS', META, 'flow_keyed') == 1 then receive_keys(now, now_us, keyed, holds) end
arrivals.write(now)
--@end
update_meta(format, max_envelope_bytes, inspect_envelopes, string.format('%.0f', longest), inspect)
return 1
