#!lua flags=no-writes
--- Counts a queue's messages.
-- Reply  {now in us, exists, paused, due and ready, scheduled, living, dead, earliest due or -1}
--@include keys
--@include now
local meta = redis.call('HMGET', META, 'format', 'paused')
local ready = redis.call('ZCOUNT', DUE, '-inf', now)
return { clock[1] * 1000000 + clock[2], meta[1] and 1 or 0, meta[2] and 1 or 0, ready, redis.call('ZCARD', DUE) - ready,
  redis.call('HLEN', MSG), redis.call('ZCARD', DEAD), tonumber(redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')[2] or -1) }
