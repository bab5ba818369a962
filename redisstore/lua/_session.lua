-- Makes repeated requests idempotent; see session.go. A session makes one request at a time, with increasing numbers,
-- and a script that changes something records the number of the session's last request. A repeated request thus finds
-- that it was executed before. Requests that are not repeated look too, because a first attempt may arrive after its
-- repetition.
--
-- previous_reply returns nil if the request was not executed yet, and otherwise what record_request kept of its
-- reply. That is '' if nothing was kept, or if a later request of the session was executed, so nobody waits for this
-- reply.
local function previous_reply(session, number)
  local last = tonumber(redis.call('ZSCORE', CALLS, session) or '')
  if not last or last < tonumber(number) then return nil end
  local of, answer = string.match(redis.call('HGET', META, 'answer:' .. session) or '', '^(%d+):(.*)$')
  return of == number and answer or ''
end

-- record_request records a request. It is the first write of its script. A request that found nothing to change is
-- recorded too if its queue exists, because its first attempt may still arrive when there is something to change.
-- (Refusals for a lost lease are not recorded, because leases never return.) answer is the part of the reply that a
-- repetition cannot recompute, or nil. Numbers are microseconds of the clients' clocks, which may be wrong. With more
-- than KEEP_SESSIONS sessions, each new one deletes some that made no request for a day, both by the server's clock
-- and by the new session's.
local function record_request(session, number, answer)
  if answer then redis.call('HLEN', META) end -- a META of a wrong type fails the script here
  if redis.call('ZADD', CALLS, 'GT', number, session) == 1 and redis.call('ZCARD', CALLS) > KEEP_SESSIONS then
    local by = math.min(now * 1000, tonumber(number))
    local old = redis.call('ZRANGE', CALLS, '-inf', by - 86400000000, 'BYSCORE', 'LIMIT', 0, 100)
    if #old > 0 then
      redis.call('ZREM', CALLS, unpack(old))
      for i, name in ipairs(old) do old[i] = 'answer:' .. name end
      redis.pcall('HDEL', META, unpack(old)) -- META may not have been read
    end
  end
  if answer then redis.call('HSET', META, 'answer:' .. session, number .. ':' .. answer) end
end

-- decode_words and decode_positions parse lists of words, which may be empty, and of numbers, with a space after each.
local function decode_words(answer)
  local all = {}
  for word in string.gmatch(answer, '([^ ]*) ') do all[#all + 1] = word end
  return all
end

local function decode_positions(answer)
  local all = decode_words(answer)
  for i, word in ipairs(all) do all[i] = tonumber(word) end
  return all
end

-- encode_list encodes such a list, or returns nil for an empty one.
local function encode_list(all)
  return all[1] and table.concat(all, ' ') .. ' ' or nil
end
