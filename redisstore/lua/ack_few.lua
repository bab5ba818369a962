#!lua flags=allow-oom
--- Acks messages of one lease like ack.lua, but handles only the common case, at two fifths of the cost.
-- KEYS   as common.go lists them
-- ARGV   1 session, 2 request number, 3 lease; ids
--        then, unless the lease was claimed with one message: the length of its text if these are all of its messages,
--        or else 0
-- Reply  0; UNCOMMON if nothing was done because the lease has ended, not all messages are in it, the queue has another
--        format, a message has a record, a lease lists a cancelled or followed message, or the request is repeated or
--        the first after a turn of sessions
-- Safe   MESSAGES is written first; every other key was read before.
--@include keys
local time = redis.call('TIME')
local seconds = time[1]
--@include common_session
if redis.call('HGET', META, 'format') ~= FORMAT then return UNCOMMON end
-- Redis formats a score slowly, so it is read only if a lease has ended or ends within this second.
-- Otherwise a lease that has lost its deadline is acked, too: it never ends, so its messages are still held.
if redis.call('ZCOUNT', LEASE_DEADLINES, '-inf', seconds .. '999') > 0 then
  local deadline = redis.call('ZSCORE', LEASE_DEADLINES, ARGV[3])
  if not deadline or deadline - seconds * 1000 <= time[2] / 1000 then return UNCOMMON end
end
local last_id, text = 4, nil -- text: of the other messages
if not ARGV[5] then -- a lease with one message is as it was, or has ended
  if redis.call('HSTRLEN', LEASES, ARGV[3]) == 0 then return UNCOMMON end
else
  last_id = #ARGV - 1
  local length = ARGV[#ARGV]
  if length ~= '0' then
    if redis.call('HSTRLEN', LEASES, ARGV[3]) ~= tonumber(length) then return UNCOMMON end
  else
    text = redis.call('HGET', LEASES, ARGV[3]) or ''
    for i = 4, last_id do
      local from, to = string.find(text, '\n' .. ARGV[i] .. '\n', 1, true)
      if not from then return UNCOMMON end
      text = string.sub(text, 1, from) .. string.sub(text, to + 1)
    end
    if not string.find(text, '\n[^\t\n]') then text = nil end
  end
end
if redis.call('EXISTS', RECORDS) > 0 then
  -- The placeholder counts the cancelled and followed messages of leases; see _record_changes.lua.
  if string.sub(redis.call('HGET', RECORDS, '') or '', 1, 2) ~= '0\t' then return UNCOMMON end
  for i = 4, last_id do
    if redis.call('HEXISTS', RECORDS, ARGV[i]) == 1 then return UNCOMMON end
  end
end
redis.call('HDEL', MESSAGES, unpack(ARGV, 4, last_id))
redis.call('HSET', SESSIONS, ARGV[1], ARGV[2])
if text then
  redis.call('HSET', LEASES, ARGV[3], text)
else
  redis.call('HDEL', LEASES, ARGV[3])
  redis.call('ZREM', LEASE_DEADLINES, ARGV[3])
end
return 0
