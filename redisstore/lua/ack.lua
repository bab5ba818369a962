#!lua flags=allow-oom
--- Acks messages of any number of leases and removes them.
-- KEYS   the keys of every script, then the properties if there is a condition
-- ARGV   1 session, 2 request number
--        3 number of messages with a dedup window or in a group
--        then for each lease: lease id, number of runs, number of single messages,
--        for each run: the part of the lease's text with all its lines, or "=" and the length of the text for all of
--        it; the number of its messages, their ids
--        for each single message: its token
--        then for each message with a dedup window: its position (as in the reply), ms
--        then for each message in a group: its position, "g" and the ms of its dedup window, 0 for none
--        then property and value of the condition, if there is one
-- Reply  positions (from 1, over all, runs first within each lease) of the messages that were not held;
--        NEWER; CONFLICT if the condition is not met
-- Safe   SESSIONS is written first; every other key that is written was read before.
--@include keys
--@include format
--@include clock
--@include record_changes
--@include successors
--@include open_leases
--@include read_records
--@include session
--@include reply_positions
--@include condition
--@flow
--@include slots
--@end

-- ack_singles acks the messages of a loaded lease named by tokens, one by one; the first is at a position of the reply.
-- acked and refused are lists to append to: messages without a successor with id and position, and positions.
local function ack_singles(leases, changes, successors, l, tokens, position, has_records, acked, refused)
  local candidates, ids = {}, {}
  for i, token in ipairs(tokens) do
    local h = l.held[token]
    if h and not h.position then
      h.token, h.position = token, position + i - 1
      candidates[#candidates + 1] = h
      ids[#ids + 1] = h.id
    else
      refused[#refused + 1] = position + i - 1
    end
  end
  local records = has_records and #ids > 0 and redis.call('HMGET', RECORDS, unpack(ids))
  for i, h in ipairs(candidates) do
    local record = changes.current(h.id, records and records[i])
    local epoch, _, _, refcount = parse_record(record)
    if epoch ~= h.epoch then
      refused[#refused + 1] = h.position
      leases.drop_stale(l, h.token, record)
    else
      if not record then
        acked[#acked + 1] = h
      elseif not successors.take(h.id, record) then
        acked[#acked + 1] = h
        changes.remove(h.id, epoch, refcount)
      end
      leases.remove(l, h.token)
    end
  end
end

-- any_changed reports whether a message in a lease's runs, which are in ARGV from a on, was cancelled while it was
-- leased, by this lease or another one, or has a successor. The messages of runs have epoch 0. count is the number of
-- fields of RECORDS.
local function any_changed(count, a, runs)
  for _ = 1, runs do
    local k = tonumber(ARGV[a + 1])
    local records = read_records(count, ARGV, a + 2, a + 1 + k)
    for i = 1, records and k or 0 do
      local epoch, _, _, _, rest = parse_record(records[i])
      if epoch > 0 or successor_due(rest) then return true end
    end
    a = a + 2 + k
  end
  return false
end

-- cut_runs returns a lease's text without its runs, which are in ARGV from a on, or nil if it lacks one of them. It is
-- only for leases if any_changed returns false for their runs, and never looks at single messages. A text only becomes
-- shorter, so one of its original length is unchanged. The last due time in a run may apply to messages below it, so it
-- stays.
--@plain
local function cut_runs(lease, a, runs)
--@end
--@flow
local function cut_runs(lease, a, runs, heads, of_keys) -- it also returns whether the lease counts, and adds to of_keys
--@end
  if string.byte(ARGV[a]) == 61 then -- "=": the text itself is not needed, and expensive to read
--@plain
    return ARGV[a] == '=' .. redis.call('HSTRLEN', LEASES, lease) and '' or nil
  end
  local text = redis.call('HGET', LEASES, lease)
--@end
--@flow
    local text = redis.call('HGET', LEASES, lease) or ''
    if ARGV[a] ~= '=' .. #text then return nil end
    if counts_keys(text, heads) then count_keys(text, nil, of_keys) end
    return '', counts(text, heads)
  end
  local text = redis.call('HGET', LEASES, lease)
  local counted, keyed = text and counts(text, heads), text and counts_keys(text, heads)
  local of_runs = {} -- only counted if the lease has all runs
--@end
  for _ = 1, text and runs or 0 do
    local run = ARGV[a]
    local from, to = string.find(text, run, 1, true)
    if not from then return nil end
--@plain
    text = string.sub(text, 1, from) .. (string.match(run, '^.*\n(\t%d+\n)') or '') .. string.sub(text, to + 1)
--@end
--@flow
    local before = string.sub(text, 1, from)
    if keyed then count_keys(run, string.match(before, '^.*\n\t@([^\n]*)\n'), of_runs) end
    text = before .. (string.match(run, '^.*\n(\t@[^\n]*\n)') or '') .. (string.match(run, '^.*\n(\t%d+\n)') or '')
      .. string.sub(text, to + 1)
--@end
    a = a + 2 + tonumber(ARGV[a + 1])
  end
--@plain
  return text
--@end
--@flow
  for key, n in pairs(of_runs) do of_keys[key] = (of_keys[key] or 0) + n end
  return text, counted
--@end
end

local format = redis.call('HGET', META, 'format')
if not writes(format) then return NEWER end
local now = read_clock()
local previous, since = previous_reply(ARGV[1], ARGV[2])
if previous == UNMET then return CONFLICT end
if previous then return decode_positions(previous) end
local conditional = KEYS[QUEUE_KEYS + 1]
if not is_met(conditional, ARGV[#ARGV - 1], ARGV[#ARGV]) then return refuse(ARGV[1], ARGV[2], now, format) end
local stop = conditional and #ARGV - 2 or #ARGV -- the last argument of the messages
local refused, acked_singles, ended, texts = {}, {}, {}, {}
local acked_runs = {} -- first and last argument of each run of ids
local acked_ids = {} -- by position, if any message has a dedup window or is in a group
local count = redis.call('HLEN', RECORDS)
local inspect = count > 0 and read_refs() ~= 0 -- there may be cancelled or followed messages in leases
local changes, successors, leases -- only if a lease has to be taken apart
redis.call('HLEN', MESSAGES)
--@flow
local freed, of_keys, heads = 0, {}, read_heads()
read_slots(heads)
--@end
local pair_count = tonumber(ARGV[3])
local grouped = pair_count > 0 and string.byte(ARGV[stop]) == 103 and {} -- 103 is "g"
if pair_count > 0 then redis.call('ZCARD', DEDUP) end
if grouped then redis.call('ZCARD', GROUPS) end
local a, last, position = 4, stop - 2 * pair_count, 1
while a <= last do
  local lease, runs, singles = ARGV[a], tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
  a = a + 3
  local text
--@flow
  local counted
--@end
  if singles == 0 then
    local deadline = redis.call('ZSCORE', LEASE_DEADLINES, lease)
    if deadline and tonumber(deadline) > now and not (inspect and any_changed(count, a, runs)) then
--@plain
      text = cut_runs(lease, a, runs)
--@end
--@flow
      text, counted = cut_runs(lease, a, runs, heads, of_keys)
--@end
    end
  end
  local tokens = {}
  for _ = 1, runs do
    local k = tonumber(ARGV[a + 1])
    if text then
      acked_runs[#acked_runs + 1], acked_runs[#acked_runs + 2] = a + 2, a + 1 + k
      for i = 1, pair_count > 0 and k or 0 do acked_ids[position + i - 1] = ARGV[a + 1 + i] end
      position = position + k
--@flow
      if counted then freed = freed + k end
--@end
    else
      for i = a + 2, a + 1 + k do tokens[#tokens + 1] = ARGV[i] end
    end
    a = a + 2 + k
  end
  if text and not string.find(text, '\n[^\t\n]') then
    ended[#ended + 1] = lease
  elseif text then
    texts[#texts + 1], texts[#texts + 2] = lease, text
  else
    for i = a, a + singles - 1 do tokens[#tokens + 1] = ARGV[i] end
    a = a + singles
    if not leases then
      changes = new_record_changes()
      successors = new_successors(changes, now)
      leases = open_leases(now, changes)
    end
    ack_singles(leases, changes, successors, leases.load(lease), tokens, position, count > 0, acked_singles, refused)
    position = position + #tokens
  end
end

local any_successor = successors and successors.read()
if #acked_singles + #acked_runs > 0 or any_successor then
  record_request(ARGV[1], ARGV[2], now, encode_positions(refused), since)
end
if acked_singles[1] then
  local deleted = {}
  for i, h in ipairs(acked_singles) do deleted[i], acked_ids[h.position] = h.id, h.id end
  write('HDEL', MESSAGES, deleted)
end
if any_successor then successors.write() end
local removed = 0
for i = 1, #acked_runs, 2 do
  redis.call('HDEL', MESSAGES, unpack(ARGV, acked_runs[i], acked_runs[i + 1]))
  if count > 0 then removed = removed + redis.call('HDEL', RECORDS, unpack(ARGV, acked_runs[i], acked_runs[i + 1])) end
end
if removed > 0 then remove_placeholder() end
if changes then changes.write() end
write('HDEL', LEASES, ended)
write('ZREM', LEASE_DEADLINES, ended)
write('HSET', LEASES, texts)
if leases then leases.write() end
if pair_count > 0 then
  for i = last + 1, stop, 2 do
    local id, window = acked_ids[tonumber(ARGV[i])], tonumber(ARGV[i + 1])
    if id and not window then
      grouped[#grouped + 1] = id
      window = tonumber(string.sub(ARGV[i + 1], 2))
    end
    if id and window > 0 then redis.call('ZADD', DEDUP, now + window, id) end
  end
  if grouped then write('ZREM', GROUPS, grouped) end
  write('ZREM', DEDUP, redis.call('ZRANGE', DEDUP, '-inf', now, 'BYSCORE', 'LIMIT', 0, MAX_BATCH))
end
--@flow
for key, n in pairs(leases and leases.freed_keys or {}) do of_keys[key] = (of_keys[key] or 0) + n end
free_slots(freed + (leases and leases.freed or 0), now, of_keys)
--@end
return refused
