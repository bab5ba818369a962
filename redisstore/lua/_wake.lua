-- wake puts the marker for one waiter when due is earlier than the queue's earliest message, which is head.
local function wake(head, due)
  if due and (not head[2] or due < tonumber(head[2])) then
    redis.call('ZADD', WAKE, 'LT', due, 'm')
  end
end
