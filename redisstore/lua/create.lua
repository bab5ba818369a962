#!lua flags=allow-oom
--- Creates an empty queue, unless a queue or a sign has the name.
-- KEYS   1 META of the name
-- ARGV   1 "1" to pause it, 2 maximum age of dead messages in ms or 0, 3 maximum number of them or 0
-- Reply  1
-- Safe   META was read before it is written.
local META = KEYS[1]
local format = redis.call('HGET', META, 'format')
if format then
  redis.call('HSET', META, 'format', format) -- see safely.go
  return 1
end
local fields = { 'format', PLAIN_FORMAT }
for i, field in ipairs({ 'paused', 'dead_max_age_ms', 'dead_max_count' }) do
  if ARGV[i] ~= '0' then
    fields[#fields + 1] = field
    fields[#fields + 1] = ARGV[i]
  end
end
redis.call('HSET', META, unpack(fields))
return 1
