#!lua flags=allow-oom
--- Stops or allows claims.
-- ARGV   1 "1" when the queue's name is registered and the queue may be created
--        2 caller, 3 number of its call, 4 "1" to pause, "0" to resume
-- Reply  1, UNREGISTERED, NEWER
-- Safe   CALLS is written first; META and WAKE were read.
--@include keys
local meta = redis.call('HMGET', META, 'format')
--@include format
--@include now
--@include once
if not meta[1] and ARGV[1] ~= '1' then return UNREGISTERED end
if done_before(ARGV[2], ARGV[3]) then return 1 end
redis.call('ZCARD', WAKE)
note_call(ARGV[2], ARGV[3])
if not meta[1] then redis.call('HSET', META, 'format', FORMAT) end
if ARGV[4] == '1' then
  redis.call('HSET', META, 'paused', 1)
else
  redis.call('ZADD', WAKE, 0, 'm')
  redis.call('HDEL', META, 'paused')
end
return 1
