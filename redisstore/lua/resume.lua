#!lua flags=allow-oom
--- Lets a halted key go on with its next message.
-- ARGV   1 session, 2 request number, 3 key
-- Reply  1; 0 if no dead message halts the key; NEWER
-- Safe   SESSIONS is written first; every other key was read before.
--@include keys
--@include any_format
--@include clock
--@include session
--@include holds
local format = redis.call('HGET', META, 'format')
if not writes(format) then return NEWER end
local previous = previous_reply(ARGV[1], ARGV[2])
if previous then return tonumber(previous) or 1 end
local now, now_us = read_clock()
read_slots()
local limits = read_limits(now_us)
local halted = limits.order == 'halt' and read_keys(limits, { ARGV[3] })[1].letter == 'd'
if format then record_request(ARGV[1], ARGV[2], now, not halted and '0' or nil) end
if not halted then return 0 end
if change_holds(limits, { ARGV[3] }, function() return nil end) then wake_for_keys(now) end
return 1
