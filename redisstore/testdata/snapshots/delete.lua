#!lua flags=allow-oom
--- Removes a queue. The keys are freed in the background.
-- Reply  number of keys removed
-- The keys of a queue, the same nine in every script (see keys.go).
local DUE, MSG, LEASE, EXPIRY, TRIES, DEAD, DONE, META, WAKE = unpack(KEYS)
return redis.call('UNLINK', DUE, MSG, LEASE, EXPIRY, TRIES, DEAD, DONE, META, WAKE)
