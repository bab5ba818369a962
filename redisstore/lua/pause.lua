#!lua flags=allow-oom
--- Pauses or resumes a queue.
-- ARGV   1 session, 2 request number
--        3 "1" if the queue's name is registered and the queue may be created
--        4 "1" to pause, "0" to resume
-- Reply  1, UNREGISTERED, NEWER
-- Safe   SESSIONS is written first; META and WAKE were read before.
--@include keys
--@include format
--@include clock
--@include session
--@include waiting
local format = redis.call('HGET', META, 'format')
if not writes(format) then return NEWER end
if not format and ARGV[3] ~= '1' then return UNREGISTERED end
if previous_reply(ARGV[1], ARGV[2]) then return 1 end
redis.call('ZCARD', WAKE)
local now = read_clock()
record_request(ARGV[1], ARGV[2], now)
if not format then redis.call('HSET', META, 'format', FORMAT) end
if ARGV[4] == '1' then
  redis.call('HSET', META, 'paused', 1)
else
  redis.call('HDEL', META, 'paused')
  notify(now, now)
end
return 1
