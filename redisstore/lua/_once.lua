-- A call that would do its work twice if it were made twice leaves its number with its caller's name, see callers.go. A
-- caller makes one call at a time and its numbers rise, so a repeated call finds here whether it was done before.
-- done_before gives what was answered then (see note_call), nil when the call was not done before.
local function done_before(again, caller, number)
  if again ~= '1' then return nil end
  local last = tonumber(redis.call('ZSCORE', CALLS, caller) or '')
  return last and last >= tonumber(number) and last - tonumber(number) or nil
end

-- note_call is the first write of its script: it has not read CALLS, and nothing but that can fail any more. answer is 1 to 7
-- or nil for none, see callStep. Numbers are microseconds: a new caller is the occasion to forget those that made no call
-- for a day.
local function note_call(caller, number, answer)
  if answer then number = tonumber(number) + answer end
  if redis.call('ZADD', CALLS, 'GT', number, caller) == 1 then
    local old = redis.call('ZRANGE', CALLS, '-inf', (now - 86400000) * 1000, 'BYSCORE', 'LIMIT', 0, 100)
    if #old > 0 then
      redis.call('ZREM', CALLS, unpack(old))
      for i, name in ipairs(old) do old[i] = 'answer:' .. name end
      redis.pcall('HDEL', META, unpack(old)) -- META may not have been read
    end
  end
end
