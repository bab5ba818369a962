-- Notes in META that the queue exists and what its messages are like: ARGV[5] and ARGV[6], see send.lua.
if not meta[1] then
  redis.call('HSET', META, 'format', FORMAT, 'longest', ARGV[5])
elseif tonumber(ARGV[5]) > tonumber(meta[2] or 0) then
  redis.call('HSET', META, 'longest', ARGV[5])
end
if ARGV[6] == '1' and not meta[3] then redis.call('HSET', META, 'unusual', 1) end
