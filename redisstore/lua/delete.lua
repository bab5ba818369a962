#!lua flags=allow-oom
--- Removes a queue. The keys are freed in the background.
-- Reply  number of keys removed
--@include keys
return redis.call('UNLINK', DUE, MSG, LEASE, EXPIRY, TRIES, DEAD, DONE, META, CALLS, FAR, FARS, WAKE)
