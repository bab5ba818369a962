local stored
if count * tonumber(meta[2] or 0) <= MAX_BYTES then
  stored = redis.call('HMGET', MSG, unpack(ids))
else
  stored = {}
  for i = 1, count do stored[i] = redis.call('HEXISTS', MSG, ids[i]) == 1 end
end
local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
local records = redis.call('HLEN', TRIES) > 0 and redis.call('HMGET', TRIES, unpack(ids))
local done = redis.call('ZCARD', DONE) > 0 and redis.call('ZMSCORE', DONE, unpack(ids))
