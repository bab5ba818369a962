-- enlist lists a process as waiting; see _waiting.lua. It promises to claim at the time of the next event, nil for
-- none, unless another process, which must still listen, has promised to be there by then. first is the start of WAKE,
-- two processes with their scores. Returns the promise, or -1. A process that does not listen, '', is not listed, and
-- has to claim at every event.
local function enlist(process, first, coming, now, now_us)
  if process == '' then return coming or -1 end
  local score = IDLE + now_us
  if coming then
    local i = first[1] == process and 3 or 1
    local other, promise = first[i], tonumber(first[i + 1] or '')
    local subscribers = other and promise <= coming and promise >= now - BROKEN_AFTER_MS
      and redis.pcall('PUBSUB', 'NUMSUB', other)
    -- Without the permission to ask, every process is taken to listen.
    if not subscribers or not subscribers.err and subscribers[2] == 0 then score = coming end
  end
  redis.call('ZADD', WAKE, string.format('%d', score), process)
  -- WAKE is kept for as long as a process waits for the queue, which each one reports again and again. It is written
  -- only once in half of that time, because every write is also sent to the replicas and to the append-only file.
  if redis.call('PTTL', WAKE) < LISTED_MS / 2 then redis.call('PEXPIRE', WAKE, LISTED_MS) end
  return score < IDLE and score or -1
end
