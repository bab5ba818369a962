-- Records in META that the queue exists and the properties of its messages: ARGV[4] and ARGV[5], see send.lua.
if not meta[1] then
  redis.call('HSET', META, 'format', FORMAT, 'longest', ARGV[4])
elseif tonumber(ARGV[4]) > tonumber(meta[2] or 0) then
  redis.call('HSET', META, 'longest', ARGV[4])
end
if ARGV[5] == '1' and not meta[3] then redis.call('HSET', META, 'unusual', 1) end
