-- Notes in META that the queue exists and what its messages are like: ARGV[3] and ARGV[4], see send.lua.
if not meta[1] then
  redis.call('HSET', META, 'format', FORMAT, 'longest', ARGV[3])
elseif tonumber(ARGV[3]) > tonumber(meta[2] or 0) then
  redis.call('HSET', META, 'longest', ARGV[3])
end
if ARGV[4] == '1' and not meta[3] then redis.call('HSET', META, 'unusual', 1) end
