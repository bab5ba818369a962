local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local ids = redis.call('ZRANGE', KEYS[1], '-inf', now, 'BYSCORE', 'LIMIT', 0, ARGV[1])
if #ids == 0 then return {} end
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, #ids - 1)
redis.call('HSET', KEYS[3], ARGV[2], table.concat(ids))
redis.call('ZADD', KEYS[4], now + 30000, ARGV[2])
return {ids, redis.call('HMGET', KEYS[2], unpack(ids))}
