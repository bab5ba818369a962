#!lua flags=no-writes
--- Returns the counts of events of a queue.
-- KEYS   those of every script, then the activity
-- Reply  {now in us, exists, names of buckets and their texts}
--@include keys
--@include clock
local ACTIVITY = KEYS[QUEUE_KEYS + 1]
local _, now_us = read_clock()
return { now_us, redis.call('HEXISTS', META, 'format'), redis.call('HGETALL', ACTIVITY) }
