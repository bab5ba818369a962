#!lua flags=allow-oom
--- Moves ready messages, earliest first, to a destination in one step, after the housekeeping of a claim.
-- KEYS   the keys of the queue, then of the queue to move to, or the key of the list or stream, or in a Cluster the
--        channel
-- ARGV   1 maximum number of messages, 2 channel of the process; see claim
--        3 "queue", "list", "stream" or "channel"
--        4 "1" if the queue to move to may be created, RPUSH or LPUSH, maximum length or "0", PUBLISH or SPUBLISH
--        5 channel to publish to, or ""
--        6 "1" to return the ids of moved messages
-- Reply  {now in us, time in ms when the process has to claim again or -1, more, number of moved messages, their
--        ids or none, ids that died, ids of them that had expired, ids that were dropped or none}; UNREGISTERED;
--        {NEWER, 1} if the queue to move to has another format; the type of a key that is neither a list nor a stream
--        as it should be
-- Safe   every key is read before the first write. A repeated call moves further messages. It moves as many as take a
--        few milliseconds, at least one.
--@include keys
--@include format
--@include clock
--@include ready
--@include read_envelope
--@include session
--@include add_messages

local kind, option, to = ARGV[3], ARGV[4], KEYS[QUEUE_KEYS + 1]
local meta = read_claim_meta()
local format, inspect_envelopes = meta[1], meta[4]
if not writes(format) then return NEWER end
local now, now_us = read_clock()
if kind == 'list' or kind == 'stream' then
  local found = redis.call('TYPE', to).ok
  if found ~= 'none' and found ~= kind then return found end
end
if kind == 'queue' then
  use(1 + QUEUE_KEYS)
--@plain
  local other = redis.call('HGET', META, 'format')
--@end
--@flow
  local other, ordered, urgent = unpack(redis.call('HMGET', META, 'format', 'flow_key_order', 'flow_urgency'))
  if ordered then read_sets(urgent) end -- the moved messages are sorted
--@end
  if not writes(other) then return { NEWER, 1 } end
  if not other and option ~= '1' then return UNREGISTERED end
  for _, key in ipairs({ DUE, DEDUP, BUCKET_STARTS, WAKE, GROUPS }) do redis.call('ZCARD', key) end
  for _, key in ipairs({ MESSAGES, RECORDS, BUCKETS, BUCKET_COUNTS }) do redis.call('HLEN', key) end
  use(1)
end
if not format then
  enlist(ARGV[2], {}, nil, now, now_us)
  return { now_us, -1, 0, 0, {}, {}, {} }
end
local picked -- the messages that turns have picked, nil in a queue without turns
--@plain
local ids, values, _, coming, more, first_waiting, died, dropped = find_ready(meta, now, tonumber(ARGV[1]), PAGE_BYTES)
if #ids == 0 then
  local again = more and now or enlist(ARGV[2], first_waiting, coming, now, now_us)
  return { now_us, again, more and 1 or 0, 0, {}, died, {}, dropped }
end
--@end
--@flow
meta.now_us, meta.forwards = now_us, true
local ids, values, _, first_waiting, died, dropped, limits = find_ready(meta, now, tonumber(ARGV[1]), PAGE_BYTES)
picked = limits.turns and limits.turns.picked
local expired_turns = limits.turns and limits.turns.expired or {}
for _, id in ipairs(limits.turns and limits.turns.died or {}) do died[#died + 1] = id end
if picked then
  ids, values = {}, {}
  for i, m in ipairs(picked) do ids[i], values[i] = m.id, m.value end
end
if #ids == 0 then
  local coming, more = end_claim(limits, 0, nil, picked and died[1], ARGV[2], first_waiting, now)
  return { now_us, coming, more, 0, {}, died, expired_turns, dropped }
end
--@end

values = values or redis.call('HMGET', MESSAGES, unpack(ids))
local records = read_records(redis.call('HLEN', RECORDS), ids, 1, #ids)
local dead = {}
if not picked and (records or inspect_envelopes) then
  local _
  _, dead = inspect_all(ids, inspect_envelopes and values, records, now)
end
--@flow
do
  local taken = hold_back(limits, #ids, dead)
  limits.waiting = limits.waiting or taken < #ids
  for i = #ids, taken + 1, -1 do ids[i] = nil end
end
--@end
local dies = {}
for _, d in ipairs(dead) do dies[d[1]] = true end

-- The moved messages: ids, due times in ms, payloads (for a queue envelopes), and headers by position.
local moved, dues, bodies, headers, n = {}, {}, {}, {}, 0
local changes, windows, longest, unusual = new_record_changes(), {}, 0, '0'
local places = {} -- of messages from the lane of an ordered key
local range = (kind == 'queue' or kind == 'stream') and redis.call('ZRANGE', DUE, 0, #ids - 1, 'WITHSCORES')
--@flow
for i, m in ipairs(range and picked or {}) do range[2 * i] = m.due end
--@end
local whole, byte, sub = kind == 'queue', string.byte, string.sub
local work = 0 -- µs, about
for i = 1, #ids do
  local value = values[i]
  if work > FORWARD_WORK then -- the rest is left
    for k = #ids, i, -1 do ids[k] = nil end
    for k = #dead, 1, -1 do
      if dead[k][1] >= i then table.remove(dead, k) end
    end
--@plain
    more, coming = true, now
--@end
--@flow
    limits.waiting = true
    if picked then limits.turns.leave(i) end
--@end
    break
  end
  work = work + 3
  if value and not dies[i] then
    local at, payload, flags, window, names = 1, 2, byte(value), 0, nil
    if flags ~= 0 then at, payload, flags, window, names = read_envelope(value) end
    work = work + #value / 256 + (names and #names / 2 or 0)
    if not at then
      dies[i] = true
      local due = picked and picked[i].due or redis.call('ZSCORE', DUE, ids[i])
      dead[#dead + 1] = { i, due, 'unreadable', UNREADABLE_TEXT }
    else
      n = n + 1
      moved[n] = ids[i]
      bodies[n] = whole and (at == 1 and value or sub(value, at)) or sub(value, payload)
      if range then
        dues[n], headers[n] = range[2 * i], names
--@flow
        if limits.order and picked[i].us then places[n] = tonumber(picked[i].us) end
--@end
        if #value > longest then longest = #value end
        if flags % 8 > 0 then unusual = '1' end
      end
      if window > 0 then windows[#windows + 1], windows[#windows + 2] = now + window, ids[i] end
    end
  end
  if records and records[i] and not dies[i] then
    local epoch, _, _, refcount = parse_record(records[i])
    changes.remove(ids[i], epoch, refcount)
  end
end
table.sort(dead, function(one, other) return one[1] < other[1] end)
--@flow
for k = picked and #dead or 0, 1, -1 do limits.turns.drop(dead[k][1]) end
--@end
redis.call('ZCARD', DEAD)
redis.call('ZCARD', DEDUP)
local any_grouped = redis.call('ZCARD', GROUPS) > 0
local add, added
if kind == 'queue' and moved[1] then
  for i, due in ipairs(dues) do dues[i] = tonumber(due) end
  use(1 + QUEUE_KEYS)
  added = new_record_changes()
  local to_queue = { create = option, longest = longest, inspect = unusual }
  add = plan_add(to_queue, moved, dues, bodies, added, {}, now, now_us, places)
  use(1)
end

-- Nothing below can fail after the first write to the destination, and the queue is written after that.
if kind == 'channel' then
  for _, body in ipairs(bodies) do redis.call(option, ARGV[5], body) end
elseif kind == 'list' then
  write(option, to, bodies)
elseif kind == 'stream' then
  for i, id in ipairs(moved) do
    local entry = option ~= '0' and { 'MAXLEN', '~', option, '*' } or { '*' }
    for _, text in ipairs({ 'id', id, 'payload', bodies[i], 'due', dues[i] }) do entry[#entry + 1] = text end
    for k, text in ipairs(headers[i] or {}) do entry[#entry + 1] = (k % 2 == 1 and 'header:' or '') .. text end
    redis.call('XADD', to, unpack(entry))
  end
elseif add then
  use(1 + QUEUE_KEYS)
  add()
  added.write()
  use(1)
end
local expired = {}
if dead[1] then
  local died_now
  died_now, expired = kill(dead, now, ids, nil, nil, records)
  for _, id in ipairs(died_now) do died[#died + 1] = id end
end
if ids[1] then
  if picked then write('ZREM', DUE, ids) else redis.call('ZREMRANGEBYRANK', DUE, 0, #ids - 1) end
  write('HDEL', MESSAGES, moved)
  if any_grouped then write('ZREM', GROUPS, moved) end
  changes.write()
end
if windows[1] then
  write('ZADD', DEDUP, windows)
  write('ZREM', DEDUP, redis.call('ZRANGE', DEDUP, '-inf', now, 'BYSCORE', 'LIMIT', 0, MAX_BATCH))
end
--@plain
if not more then
  coming = enlist(ARGV[2], first_waiting, coming, now, now_us)
elseif first_waiting[1] then
  redis.call('ZREM', WAKE, ARGV[2])
  if coming then notify(coming, now) end
end
return { now_us, coming or -1, more and 1 or 0, #moved, ARGV[6] == '1' and moved or {}, died, expired, dropped }
--@end
--@flow
for _, id in ipairs(expired_turns) do expired[#expired + 1] = id end
local coming, more = end_claim(limits, #moved, nil, dead[1] or picked and died[1], ARGV[2], first_waiting, now)
return { now_us, coming, more, #moved, ARGV[6] == '1' and moved or {}, died, expired, dropped }
--@end
