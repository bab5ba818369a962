local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- after returns the time a delay from now. It counts from the end of the current millisecond, so it is never short.
local function after(delay)
  if delay <= 0 then return now end
  return now + delay + (clock[2] % 1000 > 0 and 1 or 0)
end

-- due_at parses a due time: "+ms" from now, or ms since 1970.
local function due_at(text)
  if string.byte(text) == 43 then return after(tonumber(text)) end
  return tonumber(text)
end
