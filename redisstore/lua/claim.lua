#!lua flags=allow-oom
--- Ends expired leases, drops dead messages that exceed the retention, promotes messages due soon from buckets, then
--- claims ready messages, earliest first, under a new lease.
-- ARGV   1 session, 2 request number, 3 "0"; "1" if the call is repeated, "2" if claim_few.lua was called for it before
--        4 maximum number of messages, 5 lease duration in ms, 6 lease id
--        7 channel of the process, which waits if there are fewer messages; "" if it does not listen
--@flow
--        8 for how many of the messages no handler is free, 9 time in ms from which on nothing is claimed; "" for none
--@end
--@plain
-- Reply  {now in us, time in ms when the process has to claim again or -1, more, deadline or 0, lease text,
--@end
--@flow
-- Reply  {now in us, time in us when the process has to claim again or -1, more, and 4 more if ready messages are
--        left that are not sorted, deadline or 0, lease text,
--@end
--        values of MESSAGES, records: position and record alternating, ids that died, ids of them that had expired,
--        ids that were dropped or none, 1 if another attempt of this call made the lease or else nothing}; NEWER
-- Safe   every key is read before the first write. A repeated call finds its lease and returns the same. Only a
--        repeated call is recorded: its first attempt may arrive when the lease has ended, and then claims nothing.
--@include keys
--@include format
--@include clock
--@include ready
--@include session

-- list_records returns the positions and the first fields of the records, among n messages.
local function list_records(records, n)
  local list = {}
  for i = 1, records and n or 0 do
    if records[i] then
      list[#list + 1], list[#list + 2] = i, string.sub(records[i], 1, RECORD_HEAD)
    end
  end
  return list
end

-- first_text returns the lease text of the queue's first n messages, given their lines. few is the reply of ZRANGE for
-- them if they are few. Otherwise, since formatting a due time is slow in Redis 7.0, it counts how many messages share
-- one instead of reading each, as long as that takes fewer reads.
local function first_text(lines, n, few)
  local parts, at = { '' }, 0
  while not few and at < n and #parts < 64 do
    local due = redis.call('ZRANGE', DUE, at, at, 'WITHSCORES')[2]
    local count = math.min(redis.call('ZCOUNT', DUE, due, due), n - at)
    parts[#parts + 1] = '\t' .. due
    parts[#parts + 1] = table.concat(lines, '\n', at + 1, at + count)
    at = at + count
  end
  local range = few or at < n and redis.call('ZRANGE', DUE, at, n - 1, 'WITHSCORES') or {}
  for i = 1, 2 * (n - at), 2 do
    if range[i + 1] ~= range[i - 1] then parts[#parts + 1] = '\t' .. range[i + 1] end
    parts[#parts + 1] = lines[at + (i + 1) / 2]
  end
  parts[#parts + 1] = ''
  return table.concat(parts, '\n')
end

--@flow
-- next_fence returns the fence of the messages with a key that were picked, as a line of the lease, or '' for none.
local function next_fence(limits, picked)
  local any = false
  for _, m in ipairs(limits.order and picked or {}) do any = any or m.key.name ~= '' end
  if not any then return '' end
  local last = tonumber(redis.call('HGET', META, 'flow_fence_us') or '') or 0
  local fence = string.format('%.0f', math.max(limits.now_us, last + 1))
  redis.call('HSET', META, 'flow_fence_us', fence)
  return '\t!' .. fence .. '\n'
end

-- lease_of_turns returns the lease text of messages that were picked by turns, a deadline of 0, their values, and their
-- records for the reply. It removes the messages from DUE.
local function lease_of_turns(limits, picked)
  local ids, lines, dues, keys, values, records = {}, {}, {}, {}, {}, {}
  for i, m in ipairs(picked) do
    ids[i], lines[i], dues[i], keys[i], values[i] = m.id, m.text, m.due, m.key.name, m.value
    if m.record then
      records[#records + 1], records[#records + 2] = i, string.sub(m.record, 1, RECORD_HEAD)
    end
  end
  if not ids[1] then return '', 0, {}, {} end
  write('ZREM', DUE, ids)
  local head = heads_of(limits.since, limits.keyed)[2] .. next_fence(limits, picked)
  return head .. string.sub(lease_text(lines, dues, keys), 2), 0, values, records
end

--@end
-- repeated_claim returns the reply to a repeated call, given the text of its lease: the messages as they were claimed,
-- without messages that were cancelled since, even if their ids were sent again. It reads no successors, which are
-- long.
local function repeated_claim(text, now, now_us)
  local ids, epochs = {}, {}
  for id, _, epoch in each_entry(text) do
    ids[#ids + 1] = id
    epochs[#epochs + 1] = tonumber(epoch) or 0
  end
  local records = read_records(redis.call('HLEN', RECORDS), ids, 1, #ids)
  local values, fields, at = {}, {}, {} -- fields: ids to read in MESSAGES; at: their positions
  for i, id in ipairs(ids) do
    local epoch, _, _, _, rest = parse_record(records and records[i])
    values[i] = false
    if epoch == epochs[i] and successor_due(rest) then
      values[i], records[i] = read_original(id, epoch)
    elseif epoch == epochs[i] then
      fields[#fields + 1] = id
      at[#fields] = i
    end
  end
  for k, value in ipairs(fields[1] and redis.call('HMGET', MESSAGES, unpack(fields)) or {}) do values[at[k]] = value end
  local deadline = tonumber(redis.call('ZSCORE', LEASE_DEADLINES, ARGV[6]))
  return { now_us, now, 1, deadline, text, values, list_records(records, #ids), {}, {}, {}, 1 }
end

local meta = read_claim_meta()
local format, inspect_envelopes = meta[1], meta[4]
if not writes(format) then return NEWER end
local now, now_us = read_clock()
if not format then
  enlist(ARGV[7], {}, nil, now, now_us)
  return { now_us, -1, 0, 0, '', {}, {}, {}, {} }
end
-- This lease id exists if the call is repeated; the first attempt and the repetition may arrive in either order.
local held = redis.call('HGET', LEASES, ARGV[6])
local previous = previous_reply(ARGV[1], ARGV[2])
if ARGV[3] ~= '0' and not previous then
  local sets = { DUE, LEASE_DEADLINES, DEAD, DEDUP, WAKE, BUCKET_STARTS, GROUPS }
  for _, key in ipairs(sets) do redis.call('ZCARD', key) end
  for _, key in ipairs({ MESSAGES, RECORDS, BUCKETS }) do redis.call('HLEN', key) end
  record_request(ARGV[1], ARGV[2], now)
  -- Until then its first attempt may arrive, and claim_few.lua would not notice.
  if ARGV[3] == '2' then redis.call('HSET', META, 'repeats_until', now + SESSION_TURN_MS) end
end
local repeats_until = tonumber(meta[8] or '')
if repeats_until and (repeats_until <= now or repeats_until > now + SESSION_TURN_MS) then
  redis.call('HDEL', META, 'repeats_until')
end
if held then return repeated_claim(held, now, now_us) end
if previous then return { now_us, now, 1, 0, '', {}, {}, {}, {} } end
--@flow
if ARGV[9] ~= '' and now >= tonumber(ARGV[9]) then return { now_us, -1, 0, 0, '', {}, {}, {}, {} } end
--@end

--@plain
local ids, values, few, coming, more, first_waiting, died, dropped = find_ready(meta, now, tonumber(ARGV[4]),
  CLAIM_BYTES)
if #ids == 0 then
  local again = more and now or enlist(ARGV[7], first_waiting, coming, now, now_us)
  return { now_us, again, more and 1 or 0, 0, '', {}, {}, died, {}, dropped }
end
--@end
--@flow
meta.now_us = now_us
local ids, values, few, first_waiting, died, dropped, limits = find_ready(meta, now, ARGV[4] - ARGV[8], CLAIM_BYTES)
if limits.turns then
  local picked, expired = limits.turns.picked, limits.turns.expired
  local text, deadline, values, records = lease_of_turns(limits, picked)
  if picked[1] then
    deadline = now + tonumber(ARGV[5])
    redis.call('HSET', LEASES, ARGV[6], text)
    redis.call('ZADD', LEASE_DEADLINES, deadline, ARGV[6])
  end
  for _, id in ipairs(limits.turns.died) do died[#died + 1] = id end
  local coming, more = end_claim(limits, #picked, picked[1] and deadline, #limits.turns.died > 0, ARGV[7],
    first_waiting, now)
  if limits.unsorted then more = more + 4 end
  return { now_us, coming, more, deadline, text, values, records, died, expired, dropped }
end
if #ids == 0 then
  local coming, more = end_claim(limits, 0, nil, false, ARGV[7], first_waiting, now)
  return { now_us, coming, more, 0, '', {}, {}, died, {}, dropped }
end
--@end

local found = #ids
-- In the common case no message of this queue has its own attempts or expiry, and none that is claimed has a record.
-- Then messages are returned as they are, and MESSAGES is read last, when removing the entries has warmed the cache.
local records = read_first_records(ids, values)
local n = #ids
--@plain
if n < found then more, coming = true, now end
--@end
--@flow
limits.waiting = limits.waiting or n < found
--@end
redis.call('HLEN', MESSAGES)
local lines, dead = ids, nil
if records or inspect_envelopes then lines, dead = inspect_all(ids, inspect_envelopes and values, records, now) end
--@flow
do
  local claimed = hold_back(limits, n, dead)
  limits.waiting = limits.waiting or claimed < n
  for i = n, claimed + 1, -1 do
    for _, list in ipairs({ ids, lines ~= ids and lines or {}, values or {}, records or {} }) do list[i] = nil end
  end
  n = claimed
end
--@end

-- Nothing below can fail: every key that it writes was read.
local expired = {}
if dead and dead[1] then
  redis.call('ZCARD', DEAD)
  local died_now
  died_now, expired = kill(dead, now, ids, lines, values, records)
  for _, id in ipairs(died_now) do died[#died + 1] = id end
  n, few = #ids, nil
end
local text, deadline = '', 0
if n > 0 then
  text, deadline = first_text(lines, n, few), now + tonumber(ARGV[5])
--@flow
  text = heads_of(limits.since)[1] .. string.sub(text, 2)
--@end
  redis.call('HSET', LEASES, ARGV[6], text)
  redis.call('ZADD', LEASE_DEADLINES, deadline, ARGV[6])
  redis.call('ZREMRANGEBYRANK', DUE, 0, n - 1)
  values = values or redis.call('HMGET', MESSAGES, unpack(ids))
--@plain
  coming = math.min(coming or deadline, deadline)
--@end
end
--@plain
if not more then
  coming = enlist(ARGV[7], first_waiting, coming, now, now_us)
elseif first_waiting[1] then
  redis.call('ZREM', WAKE, ARGV[7])
  if coming then notify(coming, now) end
end
return { now_us, coming or -1, more and 1 or 0, deadline, text, values, list_records(records, n), died, expired,
    dropped }
--@end
--@flow
local coming, more = end_claim(limits, n, n > 0 and deadline, dead and dead[1], ARGV[7], first_waiting, now)
return { now_us, coming, more, deadline, text, values, list_records(records, n), died, expired, dropped }
--@end
