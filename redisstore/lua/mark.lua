#!lua flags=allow-oom
--- Sets the marker, unless an earlier one exists, the queue is gone or it has another format.
-- ARGV   1 due in ms
-- Reply  1, or 0 if the queue is gone or has another format
-- Safe   only WAKE is written.
--@include keys
if redis.call('HGET', META, 'format') ~= FORMAT then return 0 end
redis.call('ZADD', WAKE, 'LT', ARGV[1], 'm')
return 1
