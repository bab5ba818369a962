#!lua flags=allow-oom
--- Extends leases.
-- ARGV   1 session, 2 request number, then for each lease: lease id, ms from now or 0 to leave its deadline as it is
-- Reply  for each lease: {deadline or 0 if it has expired or ended, tokens of cancelled messages}. A call reports at
--        most MAX_BATCH of these, because it records them; the next call reports others. It looks for them only while
--        a lease lists a cancelled message, and then at a bounded number of messages: the reply is of the leases before
--        that bound, and the client calls again for the others. NEWER
-- Safe   SESSIONS is written first; every other key that is written was read before.
--@include keys
--@include format
--@include clock
--@include record_changes
--@include open_leases
--@include read_records
--@include session

-- count_cancelled returns how many messages a lease has, and how many of them may have been cancelled. It does not take
-- the lease apart, since hardly any lease has such a message.
local function count_cancelled(text, count)
  local ids = {}
  for id in string.gmatch(text, '\n([^\t\n]+)') do ids[#ids + 1] = id end
  local records, changed = read_records(count, ids, 1, #ids), 0
  for i = 1, records and #ids or 0 do
    if records[i] and string.sub(records[i], 1, 2) ~= '0\t' then changed = changed + 1 end
  end
  return #ids, changed
end

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
local reported = {} -- the reports of the earlier attempt, by position of the lease in ARGV
for a, token in string.gmatch(previous or '', '(%d+)\t([^\n]+)\n') do
  reported[tonumber(a)] = reported[tonumber(a)] or {}
  table.insert(reported[tonumber(a)], token)
end
local done = tonumber(string.match(previous or '', '^=(%d+)')) -- leases that it replied to, nil for all
local count = redis.call('HLEN', RECORDS)
local any_cancelled = count > 0 and read_refs() ~= 0
local looked = 0 -- at messages; messages of a lease that is taken apart count several times
redis.call('HLEN', LEASES)
local changes = new_record_changes()
local leases = open_leases(now, changes)
--@flow
read_slots(leases.heads)
--@end
local reply, extended, new_lost = {}, {}, {}
for a = 3, #ARGV, 2 do
  if looked >= MAX_LOOKED or #reply == done then break end
  local lease = ARGV[a]
  local deadline = redis.call('ZSCORE', LEASE_DEADLINES, lease)
  local lost = reported[a] or {}
  if not deadline or tonumber(deadline) <= now then
    deadline = 0
  elseif previous then -- a cancel is reported once, and this reply may get lost
    deadline = tonumber(deadline)
  else
    local wanted = tonumber(ARGV[a + 1])
    deadline = wanted > 0 and now + wanted or tonumber(deadline)
    local text = any_cancelled and redis.call('HGET', LEASES, lease)
    local n, cancelled = 0, 0
    if text then n, cancelled = count_cancelled(text, count) end
    looked = looked + n
    if cancelled > 0 then
      looked = looked + 4 * n
      local left
      lost, left = drop_cancelled(leases, changes, lease, MAX_BATCH - #new_lost)
      for _, token in ipairs(lost) do new_lost[#new_lost + 1] = a .. '\t' .. token .. '\n' end
      if left == 0 then deadline = 0 end
    end
  end
  if deadline > 0 and not previous and ARGV[a + 1] ~= '0' then
    extended[#extended + 1], extended[#extended + 2] = deadline, lease
  end
  reply[#reply + 1] = { deadline, lost }
end
-- A partial reply is recorded even if nothing was done: a repetition that replied for more leases would not know the
-- reports of the calls after this one about them.
local partial = 2 * #reply < #ARGV - 2
if not previous and (partial or #extended + #new_lost > 0) then
  if partial then table.insert(new_lost, 1, '=' .. #reply .. '\n') end
  record_request(ARGV[1], ARGV[2], now, new_lost[1] and table.concat(new_lost))
end
write('ZADD', LEASE_DEADLINES, extended)
changes.write()
leases.write()
--@flow
free_slots(leases.freed, now, leases.freed_keys)
--@end
return reply
