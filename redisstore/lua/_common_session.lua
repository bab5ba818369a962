-- What _session.lua does, for the scripts of the common case, given the server's time in seconds: ends the script if
-- the request or a later one of the session was executed, or if the sessions turn within this second. Without
-- OLD_SESSIONS the session has looked lately, see session.go: then it ends the script if SESSIONS lacks the session,
-- because the sessions have turned since.
local last
if OLD_SESSIONS then
  local found = redis.call('HMGET', SESSIONS, ARGV[1], 'since')
  local age = found[2] and seconds * 1000 - found[2]
  if not age or age + 999 >= SESSION_TURN_MS or -age >= SESSION_TURN_MS then return UNCOMMON end
  last = found[1] or redis.call('HGET', OLD_SESSIONS, ARGV[1]) or '0'
else
  last = redis.call('HGET', SESSIONS, ARGV[1])
  if not last then return UNCOMMON end
end
-- Text is slow to convert to a number, but of two texts with as many digits the lower one is the lower number.
if (#last ~= #ARGV[2] or last >= ARGV[2])
  and (tonumber(last) or tonumber(string.match(last, '^%d+'))) >= tonumber(ARGV[2]) then
  return UNCOMMON
end
