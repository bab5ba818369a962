#!lua flags=allow-oom
--- Gives leases more time.
-- ARGV   1 caller, 2 number of its call, then for each lease: lease id, ms from now
-- Reply  for each lease: {deadline or 0 when it has expired or ended, tokens of cancelled messages}
-- Safe   CALLS is written first; every other key that is written was read.
--@include keys
--@include now
--@include record
--@include write
--@include lease
--@include once
local before = done_before(ARGV[1], ARGV[2])
local told = {} -- what the earlier call told of each lease, by its place in ARGV
for a, token in string.gmatch(before or '', '(%d+)\t([^\n]+)\n') do
  told[tonumber(a)] = told[tonumber(a)] or {}
  table.insert(told[tonumber(a)], token)
end
local plain = redis.call('HLEN', TRIES) == 0
redis.call('HLEN', LEASE)
local reply, extended, let_known = {}, {}, {}
for a = 3, #ARGV, 2 do
  local lease = ARGV[a]
  local deadline = redis.call('ZSCORE', EXPIRY, lease)
  local lost = told[a] or {}
  if not deadline or tonumber(deadline) <= now then
    deadline = 0
  elseif before then -- nothing is looked for, since a cancel is told once, and nobody may hear it
    deadline = tonumber(deadline)
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
          let_known[#let_known + 1] = a .. '\t' .. token .. '\n'
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
if #extended + #let_known > 0 then note_call(ARGV[1], ARGV[2], let_known[1] and table.concat(let_known)) end
write('ZADD', EXPIRY, extended)
write_tries()
write_leases()
return reply
