#!lua flags=allow-oom
--- Acks messages of one lease like ack.lua, but handles only the common case, at half the cost.
-- KEYS   as common.go lists them
-- ARGV   1 session, 2 request number, 3 lease, 4 length of its text if these are all of its messages, or else 0; ids
-- Reply  0; UNCOMMON if nothing was done because the lease has ended, not all messages are in it, the queue has another
--        format, a message has a record, a lease lists a cancelled or followed message, or the request is repeated or
--        the first after a turn of sessions
-- Safe   MESSAGES is written first; every other key was read before.
--@include keys
--@include now
--@include common_session
local deadline = redis.call('ZSCORE', LEASE_DEADLINES, ARGV[3])
if not deadline or tonumber(deadline) <= now or redis.call('HGET', META, 'format') ~= FORMAT then return UNCOMMON end
local text -- of the other messages
if ARGV[4] ~= '0' then
  if redis.call('HSTRLEN', LEASES, ARGV[3]) ~= tonumber(ARGV[4]) then return UNCOMMON end
else
  text = redis.call('HGET', LEASES, ARGV[3]) or ''
  for i = 5, #ARGV do
    local from, to = string.find(text, '\n' .. ARGV[i] .. '\n', 1, true)
    if not from then return UNCOMMON end
    text = string.sub(text, 1, from) .. string.sub(text, to + 1)
  end
  if not string.find(text, '\n[^\t\n]') then text = nil end
end
if redis.call('EXISTS', RECORDS) > 0 then
  -- The placeholder counts the cancelled and followed messages of leases; see _record_changes.lua.
  if string.sub(redis.call('HGET', RECORDS, '') or '', 1, 2) ~= '0\t' then return UNCOMMON end
  for i = 5, #ARGV do
    if redis.call('HEXISTS', RECORDS, ARGV[i]) == 1 then return UNCOMMON end
  end
end
redis.call('HDEL', MESSAGES, unpack(ARGV, 5))
redis.call('HSET', SESSIONS, ARGV[1], ARGV[2])
if text then
  redis.call('HSET', LEASES, ARGV[3], text)
else
  redis.call('HDEL', LEASES, ARGV[3])
  redis.call('ZREM', LEASE_DEADLINES, ARGV[3])
end
return 0
