#!lua flags=allow-oom
--- Lists a process as waiting, unless there is something to claim, and removes processes that are dead.
-- ARGV   1 the process's channel, then the channels of dead processes
--@plain
-- Reply  {now in us, its promise in ms or -1, "1" if there is something to claim}; NEWER
--@end
--@flow
-- Reply  {now in us, its promise in us or -1, "1" if there is something to claim}; NEWER
--@end
-- Safe   only WAKE is written.
--@include keys
--@include format
--@include clock
--@include enlist
--@include next_event
local format, paused, packed = unpack(redis.call('HMGET', META, 'format', 'paused', 'packed_messages'))
if not reads(format) then return NEWER end
local now, now_us = read_clock()
local coming = format and next_event(paused, packed) or nil
if #ARGV > 1 then redis.call('ZREM', WAKE, unpack(ARGV, 2)) end
if coming and coming <= now then return { now_us, -1, 1 } end
--@plain
return { now_us, enlist(ARGV[1], redis.call('ZRANGE', WAKE, 0, 1, 'WITHSCORES'), coming, now, now_us), 0 }
--@end
--@flow
return { now_us, to_us(enlist(ARGV[1], redis.call('ZRANGE', WAKE, 0, 1, 'WITHSCORES'), coming, now, now_us)), 0 }
--@end
