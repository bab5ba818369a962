#!lua flags=allow-oom
--- Stops or allows claims.
-- ARGV   1 "1" when the queue's name is registered and the queue may be created, 2 "1" to pause, "0" to resume
-- Reply  1, UNREGISTERED, NEWER
-- Safe   WAKE is written first; META was read.
--@include keys
local meta = redis.call('HMGET', META, 'format')
--@include format
if not meta[1] then
  if ARGV[1] ~= '1' then return UNREGISTERED end
  redis.call('HSET', META, 'format', FORMAT)
end
if ARGV[2] == '1' then
  redis.call('HSET', META, 'paused', 1)
else
  redis.call('ZADD', WAKE, 0, 'm')
  redis.call('HDEL', META, 'paused')
end
return 1
