#!lua flags=allow-oom
--- Records that a process is alive, and finds dead ones.
-- KEYS   1 the server's processes: channel → time of the last beat in ms
-- ARGV   1 the process's channel
-- Reply  {time since its last beat in ms or -1, number of connections that listen to its channel or -1 if that is
--        unknown, "1" if a process may not publish, number of processes, channels of dead processes}
-- Safe   KEYS[1] was read before it is written.
--@include clock
local key, process = KEYS[1], ARGV[1]
local now = read_clock()
local last = tonumber(redis.call('ZSCORE', key, process) or '')
redis.call('ZADD', key, now, process)
redis.call('ZREMRANGEBYSCORE', key, '-inf', now - FORGET_PROCESS_MS)
redis.call('PEXPIRE', key, LISTED_MS)
local heard = redis.pcall('PUBLISH', process, '')
local muted = redis.call('ZSCORE', key, 'muted') and 1 or 0
return { last and math.max(now - last, 0) or -1, type(heard) == 'number' and heard or -1, muted,
  redis.call('ZCARD', key), redis.call('ZRANGE', key, '-inf', now - DEAD_AFTER_MS, 'BYSCORE', 'LIMIT', 0, 100) }
