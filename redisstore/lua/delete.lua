#!lua flags=allow-oom
--- Deletes a queue. Its keys are freed in the background.
-- Reply  number of keys deleted
--@include keys
return redis.call('UNLINK', DUE, MSG, LEASE, EXPIRY, TRIES, DEAD, DONE, META, CALLS, FAR, FARS, WAKE)
