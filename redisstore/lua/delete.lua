#!lua flags=allow-oom
--- Deletes a queue. Its keys are freed in the background. Processes still wait for it.
-- KEYS   those of every script, then the properties and the activity
-- Reply  number of keys deleted
-- Safe   it is one command.
--@include keys
local PROPERTIES, ACTIVITY = KEYS[QUEUE_KEYS + 1], KEYS[QUEUE_KEYS + 2]
return redis.call('UNLINK', DUE, MESSAGES, LEASES, LEASE_DEADLINES, RECORDS, DEAD, DEDUP, META, SESSIONS,
  OLD_SESSIONS, BUCKETS, BUCKET_STARTS, BUCKET_COUNTS, GROUPS, PROPERTIES, ACTIVITY)
