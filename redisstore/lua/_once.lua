-- A call that changes something leaves its number with its caller's name, see callers.go. A caller makes one call at a time
-- and its numbers rise, so a call that is repeated finds here whether it was done before. Calls that are not repeated look,
-- too: a first try may arrive after its repetition.
-- done_before is nil when the call was not done, and else what note_call kept of its answer: '' where it kept nothing, or
-- where a later call of the caller was done, so that nobody waits for this one's answer.
local function done_before(caller, number)
  local last = tonumber(redis.call('ZSCORE', CALLS, caller) or '')
  if not last or last < tonumber(number) then return nil end
  local of, answer = string.match(redis.call('HGET', META, 'answer:' .. caller) or '', '^(%d+):(.*)$')
  return of == number and answer or ''
end

-- note_call is the first write of its script. A call that found nothing to change is noted, too, where its queue exists: its first
-- try may still arrive, when there is. (Not so what a lease that is lost was refused: no lease comes again.) answer is what a
-- repetition has to answer and cannot find out, or nil. Numbers are microseconds of the callers' clocks, which may be wrong: where
-- there are more than KEEP_CALLERS, a new one is the occasion to forget those that made no call for a day, by the server's clock
-- and by the new one's.
local function note_call(caller, number, answer)
  if answer then redis.call('HLEN', META) end -- a META of a wrong type fails the script here
  if redis.call('ZADD', CALLS, 'GT', number, caller) == 1 and redis.call('ZCARD', CALLS) > KEEP_CALLERS then
    local by = math.min(now * 1000, tonumber(number))
    local old = redis.call('ZRANGE', CALLS, '-inf', by - 86400000000, 'BYSCORE', 'LIMIT', 0, 100)
    if #old > 0 then
      redis.call('ZREM', CALLS, unpack(old))
      for i, name in ipairs(old) do old[i] = 'answer:' .. name end
      redis.pcall('HDEL', META, unpack(old)) -- META may not have been read
    end
  end
  if answer then redis.call('HSET', META, 'answer:' .. caller, number .. ':' .. answer) end
end

-- words and positions read lists of words, which may be empty, and of numbers, with a space after each.
local function words(answer)
  local all = {}
  for word in string.gmatch(answer, '([^ ]*) ') do all[#all + 1] = word end
  return all
end

local function positions(answer)
  local all = words(answer)
  for i, word in ipairs(all) do all[i] = tonumber(word) end
  return all
end

-- listed writes them, nil for none.
local function listed(all)
  return all[1] and table.concat(all, ' ') .. ' ' or nil
end
