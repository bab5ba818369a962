--@include session
-- is_met reports whether a condition is met: a property of the queue has a value, or is missing if the value is "". key
-- is the key of the queue's properties, nil for no condition.
local function is_met(key, property, value)
  return not key or (redis.call('HGET', key, property) or '') == value
end

-- refuse records a request with a condition that is not met, with UNMET as its reply, and returns the reply: a
-- repetition is refused, too, even if the condition is met by then. format is false if the queue does not exist.
local function refuse(session, number, now, format)
  if format then record_request(session, number, now, UNMET) end
  return CONFLICT
end
