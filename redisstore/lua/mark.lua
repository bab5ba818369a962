#!lua flags=allow-oom
--- Puts the marker back, unless an earlier one is there or the queue is gone.
-- ARGV   1 due in ms
-- Reply  1, or 0 when the queue is gone
-- Safe   WAKE is all that is written.
--@include keys
if redis.call('EXISTS', META) == 0 then return 0 end
redis.call('ZADD', WAKE, 'LT', ARGV[1], 'm')
return 1
