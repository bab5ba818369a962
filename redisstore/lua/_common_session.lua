-- What _session.lua does, for the scripts of the common case.

-- next_request returns when the sessions turned last, unless a request of the session with this number or a later one
-- was executed.
local function next_request(session, number)
  local last, since = unpack(redis.call('HMGET', SESSIONS, session, 'since'))
  last = last or redis.call('HGET', OLD_SESSIONS, session)
  if last then
    last = tonumber(last) or tonumber(string.match(last, '^%d+'))
    if last >= tonumber(number) then return nil end
  end
  return tonumber(since or '')
end

-- turns reports whether the sessions turn now.
local function turns(since, now)
  local age = now - since
  return age >= SESSION_TURN_MS or age <= -SESSION_TURN_MS
end
