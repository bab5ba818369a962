#!lua flags=allow-oom
--- Gives leases more time.
-- ARGV   for each lease: lease id, ms from now
-- Reply  for each lease: {deadline or 0 when it has expired or ended, tokens of cancelled messages}
-- Safe   EXPIRY, LEASE and TRIES are read before they are written.
--@include keys
--@include now
--@include record
--@include write
--@include lease
local plain = redis.call('HLEN', TRIES) == 0
redis.call('HLEN', LEASE)
local reply, extended = {}, {}
for a = 1, #ARGV, 2 do
  local lease = ARGV[a]
  local deadline = redis.call('ZSCORE', EXPIRY, lease)
  local lost = {}
  if not deadline or tonumber(deadline) <= now then
    deadline = 0
  else
    deadline = now + tonumber(ARGV[a + 1])
    if not plain then
      local l = load(lease, now)
      local tokens, ids = {}, {}
      for token, h in pairs(l.held) do
        tokens[#tokens + 1] = token
        ids[#ids + 1] = h.id
      end
      local records = #ids > 0 and redis.call('HMGET', TRIES, unpack(ids))
      for i, token in ipairs(tokens) do
        local h = l.held[token]
        local recorded = latest(h.id, records[i])
        if parse(recorded) ~= h.epoch then
          lost[#lost + 1] = token
          let_go(l, token, h, recorded)
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
write('ZADD', EXPIRY, extended)
write_tries()
write_leases()
return reply
