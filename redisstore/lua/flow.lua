#!lua flags=no-writes
--- Reads the limits of a queue.
-- Reply  {now in us, concurrency, starts in a period, the period in us, burst, each 0 for none, number of leased
--        messages that count, time of the next allowed start in us or 0}; NEWER
--@include keys
--@include clock
--@include limits
local format, concurrency = unpack(redis.call('HMGET', META, 'format', 'flow_concurrency'))
local _, now_us = read_clock()
if format and format ~= FLOW_FORMAT then
  if format ~= PLAIN_FORMAT and format ~= PREVIOUS_FORMAT then return NEWER end
  return { now_us, 0, 0, 0, 0, 0, 0 }
end
local limits = read_limits(now_us)
local next_us = limits.n and start_us(limits, 1) or 0
return { now_us, tonumber(concurrency or '') or 0, limits.n or 0, limits.per or 0, limits.burst or 0, limits.leased,
  next_us }
