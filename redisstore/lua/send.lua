#!lua
--- Sends messages: all or none, except ids that are live or within their dedup window.
-- ARGV   1 "1" if the queue's name is registered and the queue may be created
--        2 session, 3 request number
--        4 length of the longest envelope, including the prefix of a packed one
--        5 "1" if claims must inspect one of the envelopes (attempts, expiry)
--        6 "1" if the client waits until the messages are durable
--        7 number of messages, then the due time of each ("+ms" from now, or ms since 1970), then its id and envelope
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
--@include notify
--@include session

-- adds_nothing returns the reply when there is nothing to add. WAIT and WAITAOF cover everything the server wrote up
-- to the connection's own last write, so a durable send needs a write: it sets a field to the value it already has.
local function adds_nothing(duplicates)
  if ARGV[6] == '1' and meta[1] then redis.call('HSET', META, 'format', FORMAT) end
  return duplicates
end

local previous = previous_reply(ARGV[2], ARGV[3])
if previous then return adds_nothing(decode_positions(previous)) end
local count = tonumber(ARGV[7])
local first_pair = 8 + count
local ids = {}
for i = 1, count do ids[i] = ARGV[first_pair + 2 * (i - 1)] end

--@include existing
--@include rehash

local z, kept, duplicates, n, first = {}, {}, {}, 0, nil
local pack_dues, pack_ids, pack_at = {}, {}, {} -- pack_at: their positions among all
local text, score, due, packable -- the previous due time: as given, as a ZADD score, and as a number
local byte = string.byte
for i = 1, count do
  if stored[i] or (done and done[i] and tonumber(done[i]) > now) then
    stored[i] = true
    duplicates[#duplicates + 1] = i
  else
    if ARGV[7 + i] ~= text then
      text = ARGV[7 + i]
      if byte(text) == 43 then -- "+": from now
        due = after(tonumber(text))
        score = string.format('%.0f', due)
      else
        due, score = tonumber(text), text
      end
      packable = due - now > PACK_AFTER_MS
    end
    local envelope = packable and ARGV[first_pair + 2 * i - 1]
    if envelope and #envelope <= PACK_MAX_ENVELOPE then
      pack_at[#pack_at + 1] = i
      pack_dues[#pack_at] = due
      pack_ids[#pack_at] = ids[i]
    else
      n = n + 2
      z[n - 1] = score z[n] = ids[i]
      if not first or due < first then first = due end
    end
    if records and records[i] then
      local epoch, _, _, refcount = parse(records[i])
      kept[#kept + 1] = ids[i]
      kept[#kept + 1] = record(epoch, 0, '0', refcount, '')
    end
  end
end
if n == 0 and #pack_at == 0 then
  record_request(ARGV[2], ARGV[3], encode_list(duplicates))
  return adds_nothing(duplicates)
end

local write_packed
local valued = {} -- values for MSG, where they differ from the envelope
if #pack_at > 0 then
  local packed = tonumber(meta[4] or '') or 0
  --@include write
  --@include buckets
  --@include pack
  local classes, earliest, first_class = pack(pack_dues, pack_ids)
  for k, i in ipairs(pack_at) do
    if classes[k] then
      valued[i] = packed_value(pack_dues[k], classes[k], ARGV[first_pair + 2 * i - 1])
    else
      n = n + 2
      z[n - 1], z[n] = pack_dues[k], ids[i]
      if not first or pack_dues[k] < first then first = pack_dues[k] end
    end
  end
  if earliest and (not first or earliest < first) then first = earliest end
  write_packed = function() write_buckets(first_class) end
end
if is_earliest(head, first) then redis.call('ZCARD', WAKE) end
record_request(ARGV[2], ARGV[3], encode_list(duplicates))
notify(head, first)
if write_packed then write_packed() end
if n == 2 * count then
  redis.call('HSET', MSG, unpack(ARGV, first_pair))
else
  local pairs_sent = {}
  for i = 1, count do
    if not stored[i] then
      pairs_sent[#pairs_sent + 1] = ids[i]
      pairs_sent[#pairs_sent + 1] = valued[i] or ARGV[first_pair + 2 * i - 1]
    end
  end
  redis.call('HSET', MSG, unpack(pairs_sent))
end
if n > 0 then redis.call('ZADD', DUE, unpack(z)) end
if #kept > 0 then redis.call('HSET', TRIES, unpack(kept)) end
--@include update_meta
return duplicates
