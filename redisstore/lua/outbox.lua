#!lua flags=allow-oom
--- Returns what is in the outbox of a queue.
-- KEYS   the keys of every script, then the outbox
-- Reply  number of the parcel, names of the two sub-queues and what it has; nothing if the outbox is empty; NEWER
-- Safe   META is written, with what it had, so that the client can wait until a replica has what was read.
--@include keys
--@include format
local OUTBOX = KEYS[QUEUE_KEYS + 1]
local format = redis.call('HGET', META, 'format')
if not reads(format) then return NEWER end
local last, from, to, data = unpack(redis.call('HMGET', OUTBOX, 'last', 'from', 'to', 'data'))
if format then redis.call('HSET', META, 'format', format) end
return data and { tonumber(last), from, to, data } or {}
