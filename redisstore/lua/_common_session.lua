-- What _session.lua does, for the scripts of the common case: ends the script if the request or a later one of the
-- session was executed, or if the sessions turn now.
local last, since = unpack(redis.call('HMGET', SESSIONS, ARGV[1], 'since'))
last = last or redis.call('HGET', OLD_SESSIONS, ARGV[1])
if not since or now - since >= SESSION_TURN_MS or since - now >= SESSION_TURN_MS
  or last and (tonumber(last) or tonumber(string.match(last, '^%d+'))) >= tonumber(ARGV[2]) then
  return UNCOMMON
end
