#!lua
--- Sends messages: all or none, except ids that are live or within their dedup window.
-- KEYS   the keys of every script, then the properties if there is a condition
-- ARGV   1 session, 2 request number
--        3 "1" if the queue's name is registered and the queue may be created
--@flow
--          "2" if a message has an urgency
--@end
--        4 length of the longest envelope, including the prefix of a packed one
--        5 "1" if claims must inspect one of the envelopes (attempts, expiry)
--        6 "1" if the client waits until the messages are durable
--        7 number of messages, then the due time of each ("+ms" from now, or ms since 1970), then its id and envelope
--        then the positions of messages in a group, then property and value of the condition, if there is one
-- Reply  positions (from 1) of the messages that are duplicates; UNREGISTERED; NEWER; CONFLICT if the condition is not
--        met
--@flow
--        NOT_URGENT if a message has an urgency, and the flow of the queue has none
--@end
-- Safe   no allow-oom: a full server refuses the whole script. SESSIONS is written first; every other key was read
--        before, BUCKETS, BUCKET_STARTS and BUCKET_COUNTS if a message is packed.
--@include keys
--@include format
--@include clock
--@include due
--@include record
--@include earliest
--@include waiting
--@include session
--@include reply_positions
--@include existing
--@include rehash
--@include pack
--@include update_meta
--@include groups
--@include condition
--@flow
--@include arrivals
--@end

local format, max_envelope_bytes, inspect_envelopes, packed =
  unpack(redis.call('HMGET', META, 'format', 'max_envelope_bytes', 'inspect_envelopes', 'packed_messages'))
local plain = false -- true if the queue is plain by now, and this may be a repetition of a send with an urgency
--@flow
plain = ARGV[3] == '2' and format == PLAIN_FORMAT
--@end
if not (plain or writes(format)) then return NEWER end
local now, now_us = read_clock()
local previous, since = previous_reply(ARGV[1], ARGV[2])
if previous == UNMET then return CONFLICT end
if previous then
  -- WAIT and WAITAOF cover everything the server wrote up to the connection's own last write, so a durable send needs a
  -- write: it sets a field to the value it already has.
  if ARGV[6] == '1' and format then redis.call('HSET', META, 'format', plain and format or FORMAT) end
  return decode_positions(previous)
end
--@flow
if plain then return NEWER end
if ARGV[3] == '2' and redis.call('HGET', META, 'flow_urgency') ~= '1' then return NOT_URGENT end
--@end
local conditional = KEYS[QUEUE_KEYS + 1]
if not is_met(conditional, ARGV[#ARGV - 1], ARGV[#ARGV]) then return refuse(ARGV[1], ARGV[2], now, format) end
if not format and ARGV[3] ~= '1' then return UNREGISTERED end
local count = tonumber(ARGV[7])
local first_pair = 8 + count
local ids = {}
for i = 1, count do ids[i] = ARGV[first_pair + 2 * (i - 1)] end

local stored, records, dedup = read_existing(ids, tonumber(max_envelope_bytes or 0))
local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
speed_up_rehash(count)

local z, kept, duplicates, n, first = {}, {}, {}, 0, nil
--@flow
local arrivals, no_delay = new_arrivals(now_us), false
--@end
local pack_dues, pack_ids, pack_at = {}, {}, {} -- pack_at: their positions among all
local values = {} -- for MESSAGES, of messages that may be packed; others have their envelope
local text, score, due, packable -- the previous due time: as given, as a ZADD score, and as a number
for i = 1, count do
  if stored[i] or (dedup and dedup[i] and tonumber(dedup[i]) > now) then
    stored[i] = true
    duplicates[#duplicates + 1] = i
  else
    if ARGV[7 + i] ~= text then
      text = ARGV[7 + i]
      due, score = tonumber(text), text
      if string.byte(text) == 43 then -- "+", from now
        due = due_at(now_us, text)
        score = string.format('%.0f', due)
      end
      packable = due - now > PACK_AFTER_MS
--@flow
      no_delay = has_no_delay(text)
--@end
    end
    local envelope, arrives = packable and ARGV[first_pair + 2 * i - 1], nil
--@flow
    arrives = no_delay and arrivals.add(ids[i], ARGV[first_pair + 2 * i - 1])
--@end
    if envelope and #envelope <= PACK_MAX_ENVELOPE then
      pack_at[#pack_at + 1] = i
      pack_dues[#pack_at], pack_ids[#pack_at], values[i] = due, ids[i], envelope
    elseif not arrives then
      n = n + 2
      z[n - 1], z[n] = score, ids[i]
      if not first or due < first then first = due end
    end
    if records and records[i] then
      local epoch, _, _, refcount = parse_record(records[i])
      kept[#kept + 1], kept[#kept + 2] = ids[i], format_record(epoch, 0, '0', refcount, '')
    end
  end
end
local grouped = {}
for a = first_pair + 2 * count, conditional and #ARGV - 2 or #ARGV do
  local i = tonumber(ARGV[a])
  if not stored[i] then
    grouped[#grouped + 1], grouped[#grouped + 2] = group_of(ARGV[first_pair + 2 * i - 1]), ids[i]
  end
end
if grouped[1] then redis.call('ZCARD', GROUPS) end
local sorted = 0 -- messages that are sorted at once
--@flow
sorted = arrivals.n
--@end
if n + sorted == 0 and #pack_at == 0 then
  record_request(ARGV[1], ARGV[2], now, encode_positions(duplicates), since)
  return duplicates
end

local buckets -- only if messages are packed
if pack_at[1] then
  buckets = open_buckets(packed)
  first = pack(buckets, pack_dues, pack_ids, pack_at, values, z, first)
  n = #z
end
local anyone = is_earliest(head, first) and redis.call('ZCARD', WAKE) > 0
record_request(ARGV[1], ARGV[2], now, encode_positions(duplicates), since)
if anyone then notify(first, now) end
if buckets then buckets.write() end
if n + 2 * sorted == 2 * count then
  redis.call('HSET', MESSAGES, unpack(ARGV, first_pair, first_pair + 2 * count - 1))
else
  local pairs_sent = {}
  for i = 1, count do
    if not stored[i] then
      pairs_sent[#pairs_sent + 1] = ids[i]
      pairs_sent[#pairs_sent + 1] = values[i] or ARGV[first_pair + 2 * i - 1]
    end
  end
  redis.call('HSET', MESSAGES, unpack(pairs_sent))
end
if n > 0 then redis.call('ZADD', DUE, unpack(z)) end
--@flow
arrivals.write(now)
--@end
if grouped[1] then redis.call('ZADD', GROUPS, unpack(grouped)) end
if #kept > 0 then redis.call('HSET', RECORDS, unpack(kept)) end
update_meta(format, max_envelope_bytes, inspect_envelopes, ARGV[4], ARGV[5])
return duplicates
