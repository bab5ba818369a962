#!lua flags=allow-oom
--- Deletes a queue. Its keys are freed in the background. Processes still wait for it.
-- KEYS   the keys of every script, then the properties, the activity, the two of sends with a key and the outbox
-- Reply  number of keys deleted; NEWER
-- Safe   it is one command that writes.
--@include keys
--@include format
local PROPERTIES, ACTIVITY, ONCE, OLD_ONCE, OUTBOX = unpack(KEYS, QUEUE_KEYS + 1)
local format = redis.pcall('HGET', META, 'format') -- a key of a wrong type is deleted too
if type(format) == 'string' and not reads(format) then return NEWER end
--@flow
redis.call('UNLINK', LANES, KEY_STATES, TURNS, RESTS, OLD_RESTS, FORGET, KEY_FLOWS, HOLDERS, HALTED, TURNS_HIGH,
  TURNS_LOW)
--@end
return redis.call('UNLINK', DUE, MESSAGES, LEASES, LEASE_DEADLINES, RECORDS, DEAD, DEDUP, META, SESSIONS,
  OLD_SESSIONS, BUCKETS, BUCKET_STARTS, BUCKET_COUNTS, GROUPS, PROPERTIES, ACTIVITY, ONCE, OLD_ONCE,
  OUTBOX)
