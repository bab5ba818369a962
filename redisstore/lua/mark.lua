#!lua flags=allow-oom
--- Puts the marker back, unless an earlier one is there or the queue is gone.
-- ARGV   1 due in ms
-- Reply  0
-- Safe   WAKE is all that is written.
--@include keys
if redis.call('EXISTS', META) == 1 then redis.call('ZADD', WAKE, 'LT', ARGV[1], 'm') end
return 0
