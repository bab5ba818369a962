-- comes_first tells whether due is earlier than the queue's earliest message, which is head.
local function comes_first(head, due)
  return due and (not head[2] or due < tonumber(head[2]))
end

-- wake puts the marker for one waiter when due comes first.
local function wake(head, due)
  if comes_first(head, due) then redis.call('ZADD', WAKE, 'LT', due, 'm') end
end
