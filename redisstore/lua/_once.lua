-- A call that would do its work twice if it were made twice leaves its number with its caller's name, see callers.go. A
-- caller makes one call at a time and its numbers rise, so a repeated call finds here whether it was done before.
-- done_before gives what was answered then (see note_call), nil when the call was not done before.
local function done_before(again, caller, number)
  local last = tonumber(redis.call('ZSCORE', CALLS, caller) or '') -- in any case, since CALLS is written
  return again == '1' and last and last >= tonumber(number) and last - tonumber(number) or nil
end

-- note_call is for the moment when nothing can fail any more. answer is 0 to 7, see callStep. Numbers are microseconds: a
-- new caller is the occasion to forget those that made no call for a day.
local function note_call(caller, number, answer)
  if redis.call('ZADD', CALLS, 'GT', tonumber(number) + answer, caller) == 1 then
    local old = redis.call('ZRANGE', CALLS, '-inf', (now - 86400000) * 1000, 'BYSCORE', 'LIMIT', 0, 100)
    if #old > 0 then redis.call('ZREM', CALLS, unpack(old)) end
  end
end
