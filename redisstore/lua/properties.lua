#!lua flags=no-writes
--- Returns the properties of a sub-queue.
-- KEYS   the keys of every script, then the properties
-- Reply  names and values alternating; NEWER
--@include keys
--@include format
local PROPERTIES = KEYS[QUEUE_KEYS + 1]
if not reads(redis.call('HGET', META, 'format')) then return NEWER end
return redis.call('HGETALL', PROPERTIES)
