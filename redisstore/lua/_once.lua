-- A call that would do its work twice if it were made twice leaves its number with its caller's name, see callers.go. A
-- caller makes one call at a time and its numbers rise, so a repeated call finds here whether it was done before.
-- done_before gives what was answered then (see note_call), or 8 and more where a later call of the caller was done; nil when
-- the call was not done. It looks at calls that are not repeated, too: a first try may arrive after its repetition.
local function done_before(caller, number)
  local last = tonumber(redis.call('ZSCORE', CALLS, caller) or '')
  return last and last >= tonumber(number) and last - tonumber(number) or nil
end

-- note_call is the first write of its script. answer is 1 to 7 or nil for none, see callStep. Numbers are microseconds of the
-- callers' clocks, which may be wrong: where there are more than KEEP_CALLERS, a new one is the occasion to forget those that
-- made no call for a day, by the server's clock and by the new one's.
local function note_call(caller, number, answer)
  if answer then number = tonumber(number) + answer end
  if redis.call('ZADD', CALLS, 'GT', number, caller) == 1 and redis.call('ZCARD', CALLS) > KEEP_CALLERS then
    local by = math.min(now * 1000, tonumber(number))
    local old = redis.call('ZRANGE', CALLS, '-inf', by - 86400000000, 'BYSCORE', 'LIMIT', 0, 100)
    if #old > 0 then
      redis.call('ZREM', CALLS, unpack(old))
      for i, name in ipairs(old) do old[i] = 'answer:' .. name end
      redis.pcall('HDEL', META, unpack(old)) -- META may not have been read
    end
  end
end
