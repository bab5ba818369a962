#!lua
--- Adds messages; all of them or none, save for ids that are living or remembered.
-- ARGV   1 "1" when the queue's name is registered and the queue may be created
--        2 caller, 3 number of its call
--        4 length of the longest envelope, with what a far one has before it
--        5 "1" when claims have to look into one of the envelopes (attempts, expiry)
--        6 "1" when the caller waits until the messages are durable
--        7 number of messages, then the due time of each ("+ms" from now, or ms since 1970), then its id and envelope
-- Reply  positions (from 1) of the messages that are duplicates; UNREGISTERED; NEWER
-- Safe   no allow-oom: a full server refuses the script whole. CALLS is written first; every other key was read, FAR and
--        FARS where a message is far.
--@include keys
local meta = redis.call('HMGET', META, 'format', 'longest', 'unusual', 'far')
--@include format
if not meta[1] and ARGV[1] ~= '1' then return UNREGISTERED end
--@include now
--@include record
--@include wake
--@include once

-- adds_nothing is the reply when nothing is left to be done. WAIT and WAITAOF cover what the server wrote up to the
-- connection's own last write, so there must be one: what is there already.
local function adds_nothing(duplicates)
  if ARGV[6] == '1' and meta[1] then redis.call('HSET', META, 'format', FORMAT) end
  return duplicates
end

local before = done_before(ARGV[2], ARGV[3])
if before then return adds_nothing(positions(before)) end
local count = tonumber(ARGV[7])
local first_pair = 8 + count
local ids = {}
for i = 1, count do ids[i] = ARGV[first_pair + 2 * (i - 1)] end

--@include taken
--@include double

local z, kept, duplicates, n, first = {}, {}, {}, 0, nil
local far_dues, far_ids, far_at = {}, {}, {} -- far_at: their places among all
local text, score, due, is_far -- due time of the message before, as given, as ZADD takes it, and as a number
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
      is_far = due - now > FAR_AFTER
    end
    local envelope = is_far and ARGV[first_pair + 2 * i - 1]
    if envelope and #envelope <= FAR_LONGEST then
      far_at[#far_at + 1] = i
      far_dues[#far_at] = due
      far_ids[#far_at] = ids[i]
    else
      n = n + 2
      z[n - 1] = score z[n] = ids[i]
      if not first or due < first then first = due end
    end
    if tries and tries[i] then
      local epoch, _, _, pins = parse(tries[i])
      kept[#kept + 1] = ids[i]
      kept[#kept + 1] = record(epoch, 0, '0', pins, '')
    end
  end
end
if n == 0 and #far_at == 0 then
  note_call(ARGV[2], ARGV[3], listed(duplicates))
  return adds_nothing(duplicates)
end

local write_folded
local valued = {} -- what MSG is to hold of each, where it is not the envelope
if #far_at > 0 then
  local far = tonumber(meta[4] or '') or 0
  --@include write
  --@include far
  --@include fold
  local classes, earliest, first_class = fold(far_dues, far_ids)
  for k, i in ipairs(far_at) do
    if classes[k] then
      valued[i] = far_value(far_dues[k], classes[k], ARGV[first_pair + 2 * i - 1])
    else
      n = n + 2
      z[n - 1], z[n] = far_dues[k], ids[i]
      if not first or far_dues[k] < first then first = far_dues[k] end
    end
  end
  if earliest and (not first or earliest < first) then first = earliest end
  write_folded = function() write_far(first_class) end
end
if comes_first(head, first) then redis.call('ZCARD', WAKE) end
note_call(ARGV[2], ARGV[3], listed(duplicates))
wake(head, first)
if write_folded then write_folded() end
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
--@include note
return duplicates
