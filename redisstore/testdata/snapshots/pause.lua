#!lua flags=allow-oom
--- Stops or allows claims.
-- ARGV   1 "1" when the queue's name is registered and the queue may be created, 2 "1" to pause, "0" to resume
-- Reply  1, -1, -2
-- Safe   WAKE is written first; META was read.
-- The keys of a queue, the same nine in every script (see keys.go).
local DUE, MSG, LEASE, EXPIRY, TRIES, DEAD, DONE, META, WAKE = unpack(KEYS)
local meta = redis.call('HMGET', META, 'format')
-- A queue of another format is not touched.
if meta[1] and meta[1] ~= "1" then return -2 end
if not meta[1] then
  if ARGV[1] ~= '1' then return -1 end
  redis.call('HSET', META, 'format', "1")
end
if ARGV[2] == '1' then
  redis.call('HSET', META, 'paused', 1)
else
  redis.call('ZADD', WAKE, 0, 'm')
  redis.call('HDEL', META, 'paused')
end
return 1
