#!lua flags=allow-oom
--- Removes a process that does not wait any more. If it had promised to claim, another one does.
-- ARGV   1 the process's channel
-- Reply  1; NEWER
-- Safe   only WAKE is written.
--@include keys
--@include format
--@include clock
--@include waiting
--@include next_event
local format, paused, packed = unpack(redis.call('HMGET', META, 'format', 'paused', 'packed_messages'))
if not reads(format) then return NEWER end
local promise = tonumber(redis.call('ZSCORE', WAKE, ARGV[1]) or '')
if not promise then return 1 end
local coming = format and promise < IDLE and next_event(paused, packed)
redis.call('ZREM', WAKE, ARGV[1])
--@plain
if coming then notify(coming, (read_clock())) end
--@end
--@flow
if coming then notify_event(coming, (read_clock())) end
--@end
return 1
