#!lua
--- Adds messages as another store had them: all or none, except ids that are live or within their dedup window.
-- ARGV   1 "1" if the queue's name is registered and the queue may be created
--        2 session, 3 request number
--        4 length of the longest envelope, including the prefix of a packed one
--        5 "1" if claims must inspect one of the envelopes (attempts, expiry)
--        then for each message: id, envelope, due in ms, time of death in ms or "", failed attempts, "1" if it was
--        delivered or else "0", rest of its record (see _record.lua)
-- Reply  positions (from 1) of the messages that are duplicates; UNREGISTERED; NEWER
-- Safe   no allow-oom: a full server refuses the whole script. CALLS is written first; every other key was read
--        before, FAR
--        and FARS if a message is packed.
--@include keys
local meta = redis.call('HMGET', META, 'format', 'longest', 'unusual', 'far')
--@include format
if not meta[1] and ARGV[1] ~= '1' then return UNREGISTERED end
--@include now
--@include record
--@include write
--@include notify
--@include session
local previous = previous_reply(ARGV[2], ARGV[3])
if previous then return decode_positions(previous) end
local count = (#ARGV - 5) / 7
local ids = {}
for i = 1, count do ids[i] = ARGV[7 * i - 1] end

--@include existing
redis.call('ZCARD', DEAD)

local packed = tonumber(meta[4] or '') or 0
--@include buckets
--@include pack
local live, due, dead, duplicates, first = {}, {}, {}, {}, nil
local pack_dues, pack_ids, pack_at = {}, {}, {} -- pack_at: positions of their values in live
for i = 1, count do
  local a = 7 * i - 1
  local id = ids[i]
  if stored[i] or (done and done[i] and tonumber(done[i]) > now) then
    duplicates[#duplicates + 1] = i
  else
    local died, attempts, delivered, rest = ARGV[a + 3], ARGV[a + 4], ARGV[a + 5], ARGV[a + 6]
    local at, value = tonumber(ARGV[a + 2]), ARGV[a + 1]
    local packable = died == '' and at - now > PACK_AFTER_MS and #value <= PACK_MAX_ENVELOPE
    -- An unreadable message may start with the same byte as the prefix of a packed one, so it gets a prefix too.
    if string.byte(value) == 128 and not packable then value = packed_value(0, 0, value) end
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
      local epoch, _, _, refcount = parse(recorded)
      set_record(id, record(epoch, attempts, delivered, refcount, rest))
    end
  end
end
if #live == 0 then
  record_request(ARGV[2], ARGV[3], encode_list(duplicates))
  return duplicates
end

local first_class
if #pack_at > 0 then
  local classes, earliest
  classes, earliest, first_class = pack(pack_dues, pack_ids)
  for k, at in ipairs(pack_at) do
    if classes[k] or string.byte(live[at]) == 128 then
      live[at] = packed_value(pack_dues[k], classes[k] or 0, live[at])
    end
    if not classes[k] then
      if not first or pack_dues[k] < first then first = pack_dues[k] end
      due[#due + 1] = pack_dues[k]
      due[#due + 1] = pack_ids[k]
    end
  end
  if earliest and (not first or earliest < first) then first = earliest end
end
if is_earliest(head, first) then redis.call('ZCARD', WAKE) end
record_request(ARGV[2], ARGV[3], encode_list(duplicates))
notify(head, first)
if first_class then write_buckets(first_class) end
write('HSET', MSG, live)
write('ZADD', DUE, due)
write('ZADD', DEAD, dead)
write_records()
--@include update_meta
return duplicates
