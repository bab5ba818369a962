#!lua flags=allow-oom
--- Replaces the sign at a name, or removes it.
-- KEYS   META and the properties of the name
-- ARGV   1 sign or "", 2 the sign that it replaces, 3 ms after which it ends, or 0; 4 "1" if the call is repeated
-- Reply  1; CONFLICT if there is another sign, or none
-- Safe   META was read before it is written. A repeated call finds the sign that it has set.
local META, PROPERTIES = unpack(KEYS)
local format, sign = unpack(redis.call('HMGET', META, 'format', 'sign'))
if format ~= SIGN then sign = '' end
if ARGV[4] == '1' and sign == ARGV[1] and not (sign == '' and format) then
  if format then redis.call('HSET', META, 'format', format) end -- see safely.go
  return 1
end
if format ~= SIGN or sign ~= ARGV[2] then return CONFLICT end
if ARGV[1] == '' then
  redis.call('UNLINK', META, PROPERTIES)
else
  redis.call('HSET', META, 'sign', ARGV[1])
  if ARGV[3] ~= '0' then redis.call('PEXPIRE', META, ARGV[3]) end
end
return 1
