#!lua flags=allow-oom
--- Empties the outbox of a queue, if its parcel has a number.
-- KEYS   the keys of every script, then the outbox
-- ARGV   1 the number
-- Reply  1; NEWER
-- Safe   OUTBOX was read before it is written. No two parcels of a queue have the same number.
--@include keys
--@include format
local OUTBOX = KEYS[QUEUE_KEYS + 1]
local format = redis.call('HGET', META, 'format')
if not reads(format) then return NEWER end
local last = redis.call('HGET', OUTBOX, 'last')
if format then redis.call('HSET', META, 'format', format) end -- see safely.go
if last == ARGV[1] then redis.call('HDEL', OUTBOX, 'from', 'to', 'data') end
return 1
