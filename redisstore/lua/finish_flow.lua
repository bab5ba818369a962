#!lua flags=allow-oom
--- Does a step of a change of a queue's limits that is not finished.
-- Reply  1 if more is left, else 0; NEWER
-- Safe   every key was read before the first write.
--@include keys
--@include any_format
--@include clock
--@include slots
--@include go_on
local format, paused, packed, keyed, urgent = unpack(redis.call('HMGET', META, 'format', 'paused', 'packed_messages',
  'flow_keyed', 'flow_urgency'))
if format ~= FLOW_FORMAT then return writes(format) and 0 or NEWER end
read_slots()
read_flow_change()
local now, now_us = read_clock()
local more = go_on(now_us)
local at = not paused and next_ready(packed, keyed, now, urgent)
if at then notify(at, now) end
return more and 1 or 0
