#!lua
--- Sends one message like send.lua, but handles only the common case, at half the cost.
-- ARGV   as in send.lua; 7 is 1, and the message is in no group
-- Reply  as in send.lua; UNCOMMON if nothing was done because the queue does not exist or has another format, the
--        message would be packed, or its id has a record or a dedup window
-- Safe   no allow-oom: a full server refuses the whole script. MESSAGES is written first; every other key was read
--        before.
--@include keys
--@include clock
--@include due
--@include earliest
--@include waiting
--@include session
--@include reply_positions
--@include rehash
--@include update_meta

local previous, since = previous_reply(ARGV[1], ARGV[2])
if previous then return decode_positions(previous) end
local format, max_envelope_bytes, inspect_envelopes =
  unpack(redis.call('HMGET', META, 'format', 'max_envelope_bytes', 'inspect_envelopes'))
if format ~= FORMAT then return UNCOMMON end
local text, id = ARGV[8], ARGV[9]
local now, now_us = read_clock()
local due = due_at(now_us, text)
if due - now > PACK_AFTER_MS then return UNCOMMON end
if redis.call('EXISTS', RECORDS, DEDUP) > 0
  and (redis.call('HEXISTS', RECORDS, id) == 1 or redis.call('ZSCORE', DEDUP, id)) then
  return UNCOMMON
end
local earliest = is_earliest(redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES'), due)
if now_us % 16 == 0 then speed_up_rehash(16) end -- on behalf of 16 sends

local anyone = earliest and redis.call('ZCARD', WAKE) > 0
local is_new = redis.call('HSETNX', MESSAGES, id, ARGV[10]) == 1
record_request(ARGV[1], ARGV[2], now, not is_new and '1' or nil, since)
if not is_new then return { 1 } end
if anyone then notify(due, now) end
redis.call('ZADD', DUE, string.byte(text) == 43 and due or text, id) -- 43 is "+", from now
update_meta(format, max_envelope_bytes, inspect_envelopes, ARGV[4], ARGV[5])
return {}
