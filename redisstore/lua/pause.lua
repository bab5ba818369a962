#!lua flags=allow-oom
--- Pauses or resumes a queue.
-- ARGV   1 "1" if the queue's name is registered and the queue may be created
--        2 session, 3 request number, 4 "1" to pause, "0" to resume
-- Reply  1, UNREGISTERED, NEWER
-- Safe   CALLS is written first; META and WAKE were read before.
--@include keys
local meta = redis.call('HMGET', META, 'format')
--@include format
--@include now
--@include session
if not meta[1] and ARGV[1] ~= '1' then return UNREGISTERED end
if previous_reply(ARGV[2], ARGV[3]) then return 1 end
redis.call('ZCARD', WAKE)
record_request(ARGV[2], ARGV[3])
if not meta[1] then redis.call('HSET', META, 'format', FORMAT) end
if ARGV[4] == '1' then
  redis.call('HSET', META, 'paused', 1)
else
  redis.call('ZADD', WAKE, 0, 'm')
  redis.call('HDEL', META, 'paused')
end
return 1
