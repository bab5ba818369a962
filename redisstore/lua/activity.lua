#!lua flags=no-writes
--- Returns the counts of events of a queue.
-- KEYS   the keys of every script, then the activity
-- Reply  {now in us, exists, names of buckets and their texts}; NEWER
--@include keys
--@include format
--@include clock
local ACTIVITY = KEYS[QUEUE_KEYS + 1]
local format = redis.call('HGET', META, 'format')
if not reads(format) then return NEWER end
local _, now_us = read_clock()
return { now_us, format and 1 or 0, redis.call('HGETALL', ACTIVITY) }
