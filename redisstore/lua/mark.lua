#!lua flags=allow-oom
--- Puts the marker back, unless an earlier one is there, the queue is gone or it has another format.
-- ARGV   1 due in ms
-- Reply  1, or 0 when it was not for this queue
-- Safe   WAKE is all that is written.
--@include keys
if redis.call('HGET', META, 'format') ~= FORMAT then return 0 end
redis.call('ZADD', WAKE, 'LT', ARGV[1], 'm')
return 1
