#!lua
--- Adds messages as another store had them: all or none, except ids that are live or within their dedup window.
-- ARGV   1 session, 2 request number
--        3 "1" if the queue's name is registered and the queue may be created
--        4 length of the longest envelope, including the prefix of a packed one
--        5 "1" if claims must inspect one of the envelopes (attempts, expiry)
--        then for each message: id, envelope, due in ms, time of death in ms or "", failed attempts, "1" if it was
--        delivered or else "0", rest of its record (see _record.lua)
-- Reply  positions (from 1) of the messages that are duplicates; UNREGISTERED; NEWER
-- Safe   no allow-oom: a full server refuses the whole script. SESSIONS is written first; every other key was read
--        before, BUCKETS, BUCKET_STARTS and BUCKET_COUNTS if a message is packed.
--@include keys
--@include format
--@include clock
--@include record_changes
--@include earliest
--@include waiting
--@include session
--@include reply_positions
--@include existing
--@include restored
--@include update_meta
local format, max_envelope_bytes, inspect_envelopes, packed =
  unpack(redis.call('HMGET', META, 'format', 'max_envelope_bytes', 'inspect_envelopes', 'packed_messages'))
if not writes(format) then return NEWER end
if not format and ARGV[3] ~= '1' then return UNREGISTERED end
local now = read_clock()
local previous = previous_reply(ARGV[1], ARGV[2])
if previous then return decode_positions(previous) end
local count = (#ARGV - 5) / 7
local ids = {}
for i = 1, count do ids[i] = ARGV[7 * i - 1] end

local stored, records, dedup = read_existing(ids, tonumber(max_envelope_bytes or 0))
local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
redis.call('ZCARD', DEAD)

local duplicates, restored = {}, new_restored(open_buckets(packed), new_record_changes(), now)
for i = 1, count do
  local value, at, died, attempts, delivered, rest = unpack(ARGV, 7 * i, 7 * i + 5)
  if stored[i] or (dedup and dedup[i] and tonumber(dedup[i]) > now) then
    duplicates[#duplicates + 1] = i
  else
    if died ~= '' then died = math.min(tonumber(died), now) end
    restored.add(ids[i], value, at, died, attempts, delivered, rest, records and records[i])
  end
end
if not restored.pack() then
  record_request(ARGV[1], ARGV[2], now, encode_positions(duplicates))
  return duplicates
end
local anyone = is_earliest(head, restored.first) and redis.call('ZCARD', WAKE) > 0
record_request(ARGV[1], ARGV[2], now, encode_positions(duplicates))
if anyone then notify(restored.first, now) end
restored.write()
update_meta(format, max_envelope_bytes, inspect_envelopes, ARGV[4], ARGV[5])
return duplicates
