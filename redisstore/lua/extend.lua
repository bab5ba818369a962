#!lua flags=allow-oom
--- Extends leases.
-- ARGV   1 session, 2 request number, then for each lease: lease id, ms from now
-- Reply  for each lease: {deadline or 0 if it has expired or ended, tokens of cancelled messages}
-- Safe   CALLS is written first; every other key that is written was read before.
--@include keys
--@include now
--@include record
--@include write
--@include lease
--@include session
local previous = previous_reply(ARGV[1], ARGV[2])
local reported = {} -- what the earlier attempt reported, by position of the lease in ARGV
for a, token in string.gmatch(previous or '', '(%d+)\t([^\n]+)\n') do
  reported[tonumber(a)] = reported[tonumber(a)] or {}
  table.insert(reported[tonumber(a)], token)
end
local no_records = redis.call('HLEN', TRIES) == 0
redis.call('HLEN', LEASE)
local reply, extended, new_lost = {}, {}, {}
for a = 3, #ARGV, 2 do
  local lease = ARGV[a]
  local deadline = redis.call('ZSCORE', EXPIRY, lease)
  local lost = reported[a] or {}
  if not deadline or tonumber(deadline) <= now then
    deadline = 0
  elseif previous then -- a cancel is reported once, and this reply may reach nobody
    deadline = tonumber(deadline)
  else
    deadline = now + tonumber(ARGV[a + 1])
    if not no_records then
      local l = load_lease(lease, now)
      local tokens, ids = {}, {}
      for token, h in pairs(l.held) do
        tokens[#tokens + 1] = token
        ids[#ids + 1] = h.id
      end
      local records = #ids > 0 and redis.call('HMGET', TRIES, unpack(ids))
      for i, token in ipairs(tokens) do
        local h = l.held[token]
        local recorded = current_record(h.id, records[i])
        if parse(recorded) ~= h.epoch then
          lost[#lost + 1] = token
          new_lost[#new_lost + 1] = a .. '\t' .. token .. '\n'
          drop_stale(l, token, h, recorded)
        end
      end
      if l.left == 0 then deadline = 0 end
    end
  end
  if deadline > 0 then
    extended[#extended + 1] = deadline
    extended[#extended + 1] = lease
  end
  reply[#reply + 1] = { deadline, lost }
end
if #extended + #new_lost > 0 then record_request(ARGV[1], ARGV[2], new_lost[1] and table.concat(new_lost)) end
write('ZADD', EXPIRY, extended)
write_records()
write_leases()
return reply
