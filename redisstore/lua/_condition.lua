-- is_met reports whether a condition is met: a property of the queue has a value, or is missing if the value is "". key
-- is the key of the queue's properties, nil for no condition.
local function is_met(key, property, value)
  return not key or (redis.call('HGET', key, property) or '') == value
end
