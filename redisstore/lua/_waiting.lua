--@flow
--@include clock
--@include limits
--@end
-- WAKE lists the processes that wait for the queue: the name of each one's channel, with the time in ms of its promise
-- to claim. A process without a promise has IDLE plus the time in us of its listing instead. So the first one claims
-- next, and processes without a promise follow in order of arrival.

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
      -- The first process has the queue's timer, if it has any promise, and keeps it for messages that are due later. A
      -- ready message can go to any process: each one is first in turn, except that processes with a promise share a
      -- turn.
      if at == now and promise < IDLE and now % redis.call('ZCARD', WAKE) > 0 then
        process = redis.call('ZRANGE', WAKE, IDLE, '+inf', 'BYSCORE', 'LIMIT', 0, 1)[1] or process
      end
      local heard = redis.pcall('PUBLISH', process, string.format(at % 1 > 0 and '%.3f %s' or '%.0f %s', at, WAKE))
      if type(heard) == 'table' then return end -- not permitted; see probeChannel in Go
      if heard > 0 then
        redis.call('ZADD', WAKE, at, process)
        return
      end
      redis.call('ZREM', WAKE, process)
    end
  end
end
--@flow

-- notify_event is notify for an event that no limit holds back.
local function notify_event(at, now)
  notify(at, now)
end

-- notify makes sure that a process claims when a message may start that is due at a time in ms. If no slot is free, the
-- script that frees one does.
local function notify(at, now)
  local _, now_us = read_clock()
  at = may_start(read_limits(now_us), at)
  if at then notify_event(at, now) end
end
--@end
