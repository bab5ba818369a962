-- WAKE lists the processes that wait for the queue: the name of each one's channel, with the time in ms at which it
-- has promised to claim. A process without a promise has IDLE plus the time in us at which it was listed instead. So
-- the first one claims next, and those without a promise follow in the order in which they came.

-- notify makes sure that a process claims at a time in ms, or now if that has passed: one that has promised to, or one
-- that it sends a message to, which is then its promise. It removes processes that do not listen, or have broken their
-- promise. Every key that it writes must have been read.
local function notify(at, now)
  at = math.max(at, now)
  for _ = 1, MAX_NOTIFIED do
    local process, promise = unpack(redis.call('ZRANGE', WAKE, 0, 0, 'WITHSCORES'))
    if not process then return end
    promise = tonumber(promise)
    if promise < now - BROKEN_AFTER_MS then
      redis.call('ZREM', WAKE, process)
    elseif promise <= at then
      return
    else
      -- The first process has the queue's timer, if it has any promise, and keeps it for what is due later. A ready
      -- message can go to any process: each one is first in turn, except that those with a promise share a turn.
      if at == now and promise < IDLE and now % redis.call('ZCARD', WAKE) > 0 then
        process = redis.call('ZRANGE', WAKE, IDLE, '+inf', 'BYSCORE', 'LIMIT', 0, 1)[1] or process
      end
      local heard = redis.pcall('PUBLISH', process, string.format('%.0f %s', at, WAKE))
      if type(heard) == 'table' then return end -- not permitted; see probeChannel in Go
      if heard > 0 then
        redis.call('ZADD', WAKE, at, process)
        return
      end
      redis.call('ZREM', WAKE, process)
    end
  end
end
