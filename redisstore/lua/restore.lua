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
--@include pack
--@include update_meta
--@include groups
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

local buckets, changes = open_buckets(packed), new_record_changes()
local live, due, dead, grouped, duplicates, first = {}, {}, {}, {}, {}, nil
local pack_dues, pack_ids, pack_at = {}, {}, {} -- pack_at: positions of their values in live
for i = 1, count do
  local a = 7 * i - 1
  local id = ids[i]
  if stored[i] or (dedup and dedup[i] and tonumber(dedup[i]) > now) then
    duplicates[#duplicates + 1] = i
  else
    local died, attempts, delivered, rest = ARGV[a + 3], ARGV[a + 4], ARGV[a + 5], ARGV[a + 6]
    local at, value = tonumber(ARGV[a + 2]), ARGV[a + 1]
    local packable = died == '' and at - now > PACK_AFTER_MS and #value <= PACK_MAX_ENVELOPE
    local group = group_of(value)
    if group then
      grouped[#grouped + 1] = group
      grouped[#grouped + 1] = id
    end
    -- An unreadable message may start with the same byte as the prefix of a packed one, so it gets a prefix too.
    if string.byte(value) == 128 and not packable then value = buckets.value(0, 0, value) end
    live[#live + 1] = id
    live[#live + 1] = value
    if packable then
      pack_at[#pack_at + 1] = #live
      pack_dues[#pack_at] = at
      pack_ids[#pack_at] = id
    elseif died == '' then
      if not first or at < first then first = at end
      due[#due + 1] = ARGV[a + 2]
      due[#due + 1] = id
    else
      dead[#dead + 1] = math.min(tonumber(died), now)
      dead[#dead + 1] = id
    end
    local recorded = records and records[i]
    if recorded or died ~= '' or attempts ~= '0' or delivered ~= '0' or rest ~= '' then
      local epoch, _, _, refcount = parse_record(recorded)
      changes.set(id, format_record(epoch, attempts, delivered, refcount, rest))
    end
  end
end
if #live == 0 then
  record_request(ARGV[1], ARGV[2], now, encode_positions(duplicates))
  return duplicates
end

if #pack_at > 0 then
  local classes, lowest = pack(buckets, pack_dues, pack_ids)
  for k, at in ipairs(pack_at) do
    if classes[k] or string.byte(live[at]) == 128 then
      live[at] = buckets.value(pack_dues[k], classes[k] or 0, live[at])
    end
    if not classes[k] then
      if not first or pack_dues[k] < first then first = pack_dues[k] end
      due[#due + 1] = pack_dues[k]
      due[#due + 1] = pack_ids[k]
    end
  end
  if lowest and (not first or lowest < first) then first = lowest end
end
if grouped[1] then redis.call('ZCARD', GROUPS) end
local earliest = is_earliest(head, first)
local anyone = earliest and redis.call('ZCARD', WAKE) > 0
record_request(ARGV[1], ARGV[2], now, encode_positions(duplicates))
if anyone then notify(first, now) end
buckets.write()
write('HSET', MESSAGES, live)
write('ZADD', DUE, due)
write('ZADD', DEAD, dead)
write('ZADD', GROUPS, grouped)
changes.write()
update_meta(format, max_envelope_bytes, inspect_envelopes, ARGV[4], ARGV[5])
return duplicates
