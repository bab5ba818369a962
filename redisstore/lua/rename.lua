#!lua flags=allow-oom
--- Gives a queue another name, and leaves a sign at the former one. Processes that wait there are told.
-- KEYS   all keys of the queue, META, WAKE, OUTBOX and the properties first, then those of the other name
-- ARGV   1 sign, 2 sign at the other name, which goes, or ""; 3 ms after which the sign ends, or 0
-- Reply  1, also if there is no queue; CONFLICT if the other name has a queue, or another sign; NEWER
-- Safe   every key that a command can refuse was read before the first write. A repeated call finds no queue.
--@include format
--@include any_format
--@include moved
local count = #KEYS / 2
local META, WAKE, OUTBOX, PROPERTIES = unpack(KEYS)
local key, to = WAKE, KEYS[count + 1]
local format = redis.call('HGET', META, 'format')
local there, sign = unpack(redis.call('HMGET', to, 'format', 'sign'))
if not format or format == SIGN then
  -- See safely.go.
  if format then redis.call('HSET', META, 'format', format) end
  if there then redis.call('HSET', to, 'format', there) end
  return 1
end
if there and there ~= SIGN or (there and sign or '') ~= ARGV[2] then return CONFLICT end
local here = redis.call('ZRANGE', key, 0, MAX_MOVED - 1)
key = KEYS[count + 2]
local others = redis.call('ZRANGE', key, 0, MAX_MOVED - 1)
local arrived = {}
for _, field in ipairs(redis.call('HKEYS', OUTBOX)) do
  if string.byte(field) == 58 then arrived[#arrived + 1] = field end -- ":", see arrive.lua
end
if not writes(format) then return NEWER end
for i = 1, count do
  key, to = KEYS[i], KEYS[count + i]
  if i == 2 then
    redis.call('UNLINK', key)
  elseif redis.call('EXISTS', key) == 1 then
    redis.call('RENAME', key, to)
  else
    redis.call('UNLINK', to)
  end
end
to = KEYS[count + 3]
for _, field in ipairs(arrived) do redis.call('HDEL', to, field) end
leave_sign(META, PROPERTIES, WAKE, ARGV[1], ARGV[3], here)
key = KEYS[count + 2]
for _, process in ipairs(others) do redis.pcall('PUBLISH', process, '0 ' .. key) end
return 1
