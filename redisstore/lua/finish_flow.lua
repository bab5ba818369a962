#!lua flags=allow-oom
--- Does a step of a change of a queue's limits that is not finished.
-- Reply  1 if more is left, else 0; NEWER
-- Safe   every key was read before the first write.
--@include keys
--@include any_format
--@include clock
--@include slots
--@include flow_change
local format, paused, packed = unpack(redis.call('HMGET', META, 'format', 'paused', 'packed_messages'))
if format ~= FLOW_FORMAT then return writes(format) and 0 or NEWER end
read_slots()
read_flow_change()
local more = go_on()
local at = not paused and first_ready(packed)
if at then notify(at, (read_clock())) end
return more and 1 or 0
