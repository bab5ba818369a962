#!lua flags=allow-oom
--- Extends leases.
-- ARGV   1 session, 2 request number, then for each lease: lease id, ms from now or 0 to leave its deadline as it is
-- Reply  for each lease: {deadline or 0 if it has expired or ended, tokens of cancelled messages}. A call reports at
--        most MAX_BATCH of these, because it records them; the next call reports others. NEWER
-- Safe   SESSIONS is written first; every other key that is written was read before.
--@include keys
--@include format
--@include clock
--@include record_changes
--@include open_leases
--@include session

-- drop_cancelled drops the cancelled messages of a lease, at most limit, and returns their tokens, and how many
-- messages are left.
local function drop_cancelled(leases, changes, lease, limit)
  local l = leases.load(lease)
  local tokens, ids, lost = {}, {}, {}
  for token, h in pairs(l.held) do
    tokens[#tokens + 1] = token
    ids[#ids + 1] = h.id
  end
  local records = #ids > 0 and redis.call('HMGET', RECORDS, unpack(ids))
  for i, token in ipairs(tokens) do
    if #lost == limit then break end
    local record = changes.current(ids[i], records[i])
    if parse_record(record) ~= l.held[token].epoch then
      lost[#lost + 1] = token
      leases.drop_stale(l, token, record)
    end
  end
  return lost, l.left
end

if not writes(redis.call('HGET', META, 'format')) then return NEWER end
local now = read_clock()
local previous = previous_reply(ARGV[1], ARGV[2])
local reported = {} -- what the earlier attempt reported, by position of the lease in ARGV
for a, token in string.gmatch(previous or '', '(%d+)\t([^\n]+)\n') do
  reported[tonumber(a)] = reported[tonumber(a)] or {}
  table.insert(reported[tonumber(a)], token)
end
local no_records = redis.call('HLEN', RECORDS) == 0
redis.call('HLEN', LEASES)
local changes = new_record_changes()
local leases = open_leases(now, changes)
local reply, extended, new_lost = {}, {}, {}
for a = 3, #ARGV, 2 do
  local lease = ARGV[a]
  local deadline = redis.call('ZSCORE', LEASE_DEADLINES, lease)
  local lost = reported[a] or {}
  if not deadline or tonumber(deadline) <= now then
    deadline = 0
  elseif previous then -- a cancel is reported once, and this reply may reach nobody
    deadline = tonumber(deadline)
  else
    local wanted = tonumber(ARGV[a + 1])
    deadline = wanted > 0 and now + wanted or tonumber(deadline)
    if not no_records then
      local left
      lost, left = drop_cancelled(leases, changes, lease, MAX_BATCH - #new_lost)
      for _, token in ipairs(lost) do new_lost[#new_lost + 1] = a .. '\t' .. token .. '\n' end
      if left == 0 then deadline = 0 end
    end
  end
  if deadline > 0 and not previous and ARGV[a + 1] ~= '0' then
    extended[#extended + 1] = deadline
    extended[#extended + 1] = lease
  end
  reply[#reply + 1] = { deadline, lost }
end
if #extended + #new_lost > 0 then
  record_request(ARGV[1], ARGV[2], now, new_lost[1] and table.concat(new_lost))
end
write('ZADD', LEASE_DEADLINES, extended)
changes.write()
leases.write()
return reply
