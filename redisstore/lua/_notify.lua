-- is_earliest reports whether due is earlier than the queue's earliest message, head.
local function is_earliest(head, due)
  return due and (not head[2] or due < tonumber(head[2]))
end

-- notify sets the marker, which wakes one waiter, if due is the earliest.
local function notify(head, due)
  if is_earliest(head, due) then redis.call('ZADD', WAKE, 'LT', due, 'm') end
end
