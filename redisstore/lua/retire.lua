#!lua flags=allow-oom
--- Deletes a queue, and leaves a sign at its name, also if there is none. Processes that wait for it are told.
-- KEYS   all keys of the queue, META, WAKE, the outbox and the properties first
-- ARGV   1 sign, 2 ms after which it ends, or 0
-- Reply  1; NEWER
-- Safe   a key of a wrong type is deleted too.
--@include moved
local META, WAKE, _, PROPERTIES = unpack(KEYS)
local format = redis.pcall('HGET', META, 'format')
if type(format) == 'string' and format ~= SIGN and format ~= PLAIN_FORMAT and format ~= PREVIOUS_FORMAT
  and format ~= FLOW_FORMAT then
  return NEWER
end
local here = redis.pcall('ZRANGE', WAKE, 0, MAX_MOVED - 1)
for _, key in ipairs(KEYS) do redis.call('UNLINK', key) end
leave_sign(META, PROPERTIES, WAKE, ARGV[1], ARGV[2], here)
return 1
