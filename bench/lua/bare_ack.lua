if redis.call('HDEL', KEYS[3], ARGV[1]) == 0 then return 0 end
redis.call('ZREM', KEYS[4], ARGV[1])
return redis.call('HDEL', KEYS[2], unpack(ARGV, 2))
