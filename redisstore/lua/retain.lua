#!lua flags=allow-oom
--- Sets the retention of dead messages.
-- ARGV   1 session, 2 request number
--        3 "1" if the queue's name is registered and the queue may be created
--        4 maximum age in ms or "", 5 maximum number or ""
--        6 and 7 the same of the former retention that is the condition; missing without one
-- Reply  1, UNREGISTERED, NEWER; CONFLICT if the condition is not met
-- Safe   SESSIONS is written first; META was read before.
--@include keys
--@include format
--@include clock
--@include session
--@include condition
local format, age, count = unpack(redis.call('HMGET', META, 'format', 'dead_max_age_ms', 'dead_max_count'))
if not writes(format) then return NEWER end
local previous = previous_reply(ARGV[1], ARGV[2])
if previous then return previous == UNMET and CONFLICT or 1 end
if ARGV[6] and ((age or '') ~= ARGV[6] or (count or '') ~= ARGV[7]) then
  return refuse(ARGV[1], ARGV[2], (read_clock()), format)
end
if not format and ARGV[3] ~= '1' then return UNREGISTERED end
record_request(ARGV[1], ARGV[2], (read_clock()))
if not format then redis.call('HSET', META, 'format', FORMAT) end
for i, field in ipairs({ 'dead_max_age_ms', 'dead_max_count' }) do
  if ARGV[3 + i] == '' then
    redis.call('HDEL', META, field)
  else
    redis.call('HSET', META, field, ARGV[3 + i])
  end
end
return 1
