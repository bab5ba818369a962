#!lua flags=allow-oom
--- Purges messages in a state, or all of them.
-- ARGV   1 session, 2 request number
--        3 "scheduled", "ready", "dead" or "" (all, including leased messages and leases), 4 latest due time or time of
--        death in ms or "", then ids (of dead messages)
-- Reply  {number, 1 if there may be more, latest time used, keys that it resumed}; NEWER
-- Safe   SESSIONS is written first; every other key that is written was read before. Purging all deletes whole keys,
--        which cannot fail and is freed in the background.
--@include keys
--@include format
--@include clock
--@include record_changes
--@include session
--@include reply_bulk
--@include buckets
--@flow
--@include lease
--@include leave_lanes
--@end
local format, packed = unpack(redis.call('HMGET', META, 'format', 'packed_messages'))
if not writes(format) then return NEWER end
local now, now_us = read_clock()
local previous = previous_reply(ARGV[1], ARGV[2])
if previous then -- its lines are the numbers and the keys that it resumed
  local reply, resumed = decode_bulk(string.match(previous, '^[^\n]*')), {}
  for name in string.gmatch(previous, '\n([^\n]+)') do resumed[#resumed + 1] = name end
  if reply[1] then reply[4] = resumed end
  return reply
end
local state = ARGV[3]

-- record_reply records the reply and returns it.
local function record_reply(reply)
  reply[4] = reply[4] or {}
  local numbers = encode_bulk(unpack(reply, 1, 3))
  if format then record_request(ARGV[1], ARGV[2], now, table.concat({ numbers, unpack(reply[4]) }, '\n')) end
  return reply
end

--@flow
-- cancel_leased returns the leases that count, with their deadlines, and the records that their messages have then: as
-- if each message had been cancelled, so that it counts until its holder knows. It also returns how many count. They
-- are none if it would have to read too many.
local function cancel_leased()
  local leased = tonumber(redis.call('HGET', META, 'flow_leased') or '') or 0
  local live = redis.call('HLEN', MESSAGES) - redis.call('ZCARD', DUE) - redis.call('ZCARD', DEAD)
    - (tonumber(packed or '') or 0)
  if leased == 0 or math.max(leased, live, redis.call('HLEN', LEASES)) > MAX_PURGED_LEASED then return {}, {}, {}, 0 end
  local all, head = redis.call('HGETALL', LEASES), read_heads()
  local kept, deadlines, epochs, refs, ids = {}, {}, {}, {}, {}
  for i = 1, #all, 2 do
    if counts(all[i + 1], head) then
      deadlines[#deadlines + 1] = redis.call('ZSCORE', LEASE_DEADLINES, all[i]) or now
      deadlines[#deadlines + 1] = all[i]
      kept[#kept + 1], kept[#kept + 2] = all[i], all[i + 1]
      for id, _, epoch in each_entry(all[i + 1]) do
        if not refs[id] then ids[#ids + 1] = id end
        epochs[id] = math.max(epochs[id] or 0, (tonumber(epoch) or 0) + 1)
        refs[id] = (refs[id] or 0) + 1
      end
    end
  end
  local tombstones, total = {}, 0
  for _, id in ipairs(ids) do
    tombstones[#tombstones + 1] = id
    tombstones[#tombstones + 1] = format_record(epochs[id], 'x', '0', refs[id], '')
    total = total + refs[id]
  end
  if total > 0 then
    tombstones[#tombstones + 1], tombstones[#tombstones + 2] = '', total .. '\t' .. PLACEHOLDER
  end
  return kept, deadlines, tombstones, total
end

-- read_waiting_keys returns the keys that wait, or nil if they are too many.
local function read_waiting_keys()
  local keys, all = { TURNS, RESTS, OLD_RESTS, TURNS_HIGH, TURNS_LOW }, {}
  redis.call('ZCARD', FORGET)
  local count = 0
  for _, key in ipairs(keys) do count = count + redis.call('ZCARD', key) end
  if count > MAX_PURGED_KEYS then return nil end
  for _, key in ipairs(keys) do
    for _, name in ipairs(redis.call('ZRANGE', key, 0, -1)) do all[#all + 1] = name end
  end
  return all
end

-- read_held returns the keys that messages hold, their states, and their scores in RESTS.
local function read_held()
  local names = redis.call('HVALS', HOLDERS)
  if not names[1] then return { names = names } end
  return { names = names, states = redis.call('HMGET', KEY_STATES, unpack(names)),
    rests = redis.call('ZMSCORE', RESTS, unpack(names)) }
end

-- forget_keys ends the wait of all keys. Their rates and slots remain, but no hold. states are nil unless the leases of
-- counted messages have gone: then all slots are free, and rates remain if there are not too many states. If too many
-- keys wait, claims find that they have no messages; the ones that wait for their holders are placed again before.
local function forget_keys(waiting, states, held)
  redis.call('UNLINK', LANES, HOLDERS, HALTED)
  local z, new = {}, {}

  local function add(name, state, leased)
    local rest = string.match(state or '', '^%d+(\t%d+\t%d+\t%d+\t[^\t]*)')
    if not rest then return end
    new[#new + 1], new[#new + 2] = name, (leased or string.match(state, '^%d+')) .. rest .. '\t'
    z[#z + 1], z[#z + 2] = now, name
  end

  if states then
    redis.call('UNLINK', TURNS, RESTS, OLD_RESTS, FORGET, KEY_STATES, TURNS_HIGH, TURNS_LOW)
    for i = 1, #states, 2 do add(states[i], states[i + 1], '0') end
  else
    for i, name in ipairs(held.names) do add(name, held.states[i]) end
  end
  write('HSET', KEY_STATES, new)
  if not states and waiting then
    for _, name in ipairs(waiting) do
      z[#z + 1], z[#z + 2] = now, name
    end
    redis.call('UNLINK', TURNS, RESTS, OLD_RESTS, TURNS_HIGH, TURNS_LOW)
  elseif not states then
    local resting, old = {}, {}
    for i, name in ipairs(held.names) do
      if held.rests[i] then resting[#resting + 1], old[#old + 1], old[#old + 2] = name, 0, name end
    end
    write('ZREM', RESTS, resting)
    write('ZADD', OLD_RESTS, old)
  end
  write('ZADD', FORGET, z)
end

-- read_holders returns some messages that hold keys: first the ids that are not packed, then the packed ones, which it
-- takes out of their buckets.
local function read_holders(buckets)
  local all, ids, packed_ids = redis.call('HRANDFIELD', HOLDERS, MAX_BATCH), {}, {}
  local due, dead = redis.call('ZMSCORE', DUE, unpack(all)), redis.call('ZMSCORE', DEAD, unpack(all))
  for i, id in ipairs(all) do
    local unpacked, at, b = due[i] or dead[i] or buckets.packed == 0, nil, nil
    if i > 1 and buckets.searched > MAX_READ then break end
    if not unpacked then at, b = buckets.find(id) end
    if at then
      buckets.remove_line(b, at, id)
      packed_ids[#packed_ids + 1] = id
    else
      ids[#ids + 1] = id
    end
  end
  return ids, packed_ids
end

local limits = read_limits(now_us)
if state == '' and redis.call('HLEN', HOLDERS) > MAX_PURGED_KEYS then
  state = 'holders' -- at first: the reply lists the keys that they halt, and the states of keys are kept
end
--@end
if state == '' then
  local reply = { redis.call('HLEN', MESSAGES), 0, now }
--@flow
  reply[4] = limits.order == 'halt' and redis.call('ZRANGE', HALTED, 0, MAX_PURGED_KEYS - 1) or {}
  local counted = tonumber(redis.call('HGET', META, 'flow_leased') or '') or 0
  local kept, deadlines, tombstones, total = cancel_leased()
  local waiting, held, states = read_waiting_keys(), read_held(), nil
  if total < counted then
    states = redis.call('HLEN', KEY_STATES) <= MAX_PURGED_KEYS and redis.call('HGETALL', KEY_STATES) or {}
  end
--@end
  record_reply(reply)
  redis.call('UNLINK', DUE, MESSAGES, LEASES, LEASE_DEADLINES, RECORDS, DEAD, BUCKETS, BUCKET_STARTS, BUCKET_COUNTS,
    GROUPS)
--@flow
  write('HSET', LEASES, kept)
  write('ZADD', LEASE_DEADLINES, deadlines)
  write('HSET', RECORDS, tombstones)
  redis.call('HSET', META, 'flow_leased', total)
  forget_keys(waiting, states, held)
--@end
  redis.call('HDEL', META, 'max_envelope_bytes', 'packed_messages')
  return reply
end

--@flow
-- read_at_once returns how many messages may be read. The keys of sorted ones are read if they have an order: a halted
-- key drops no entries. Other keys leave them to claims.
local function read_at_once()
  local longest = tonumber(redis.call('HGET', META, 'max_envelope_bytes') or '') or 1
  return math.max(1, math.floor(MAX_READ / math.max(1, longest)))
end

--@end
local key = state == 'dead' and DEAD or DUE
local buckets, changes = open_buckets(key == DUE and packed), new_record_changes()
local before = tonumber(ARGV[4]) or (state == 'scheduled' and math.huge or now)
local ids, more = {}, 0
--@flow
local lanes, packed_holders = leave_lanes(), {}
read_slots()
--@end
--@plain
if #ARGV > 4 then
--@end
--@flow
if state == 'holders' then
  ids, packed_holders = read_holders(buckets)
  more = 1
elseif #ARGV > 4 then
--@end
  local scores = redis.call('ZMSCORE', DEAD, unpack(ARGV, 5))
  for i, score in ipairs(scores) do
    if score then ids[#ids + 1] = ARGV[i + 4] end
  end
else
  local low = '-inf'
  if state == 'scheduled' then
    low = string.format('(%.0f', now)
    if before == math.huge then
--@plain
      before = tonumber(redis.call('ZRANGE', DUE, -1, -1, 'WITHSCORES')[2] or now)
--@end
--@flow
      before = tonumber(redis.call('ZRANGE', DUE, string.format('(%.0f', SORTED), '-inf', 'BYSCORE', 'REV', 'LIMIT', 0,
        1, 'WITHSCORES')[2] or now)
      before = math.max(before, due_in(redis.call('ZRANGE', DUE, -1, -1, 'WITHSCORES')[2]) or now)
--@end
      if buckets.packed > 0 then
        local starts = buckets.range(redis.call('ZRANGE', BUCKET_STARTS, -1, -1)[1] or '') or 0
        before = math.max(before, starts + BUCKET_WIDEST_MS) -- no packed message is due later
      end
    end
  end
  ids = redis.call('ZRANGE', key, low, before, 'BYSCORE', 'LIMIT', 0, MAX_BATCH)
--@flow
  if key == DUE then
    low = state == 'scheduled' and string.format('(%.0f', now + SORTED) or SORTED -- if the clock was set back
    local most = math.min(MAX_BATCH - #ids, limits.order and read_at_once() or MAX_BATCH)
    local sorted = redis.call('ZRANGE', DUE, low, before + SORTED, 'BYSCORE', 'LIMIT', 0, most, 'WITHSCORES')
    local from = #ids
    for i = 1, #sorted, 2 do ids[#ids + 1] = sorted[i] end
    if #ids - from == most then more = 1 end
    local values = limits.order and #ids > from and redis.call('HMGET', MESSAGES, unpack(ids, from + 1)) or {}
    for i, value in ipairs(values) do lanes.add(ids[from + i], sorted[2 * i], value) end
  end
--@end
  if #ids == MAX_BATCH then more = 1 end
end
local due_removed = #ids -- this many ids are in DUE or DEAD; the others are packed
--@flow
for _, id in ipairs(packed_holders) do ids[#ids + 1] = id end
--@end
if buckets.packed > 0 and more == 0 and #ARGV == 4 then
  local after = state == 'scheduled' and now or -math.huge
  -- Buckets that start earlier may hold messages due later.
  local names = state == 'scheduled' and buckets.names_at(now) or {}
  buckets.load(names)
  local begun = #names
  local min_start = begun > 0 and '(' .. now or '-inf'
  for _, name in ipairs(redis.call('ZRANGE', BUCKET_STARTS, min_start, before, 'BYSCORE', 'LIMIT', 0, 101)) do
    names[#names + 1] = name
  end
  for k, name in ipairs(names) do
    if k > begun + 100 or #ids >= MAX_BATCH then
      more = 1
      break
    end
    local b = buckets.get(name)
    local left = { '\n' }
    for due, id in buckets.each_line(b) do
      if due <= after or due > before then
        left[#left + 1] = buckets.line(b, due, id)
      elseif #ids < MAX_BATCH then
        ids[#ids + 1] = id
      else
        left[#left + 1] = buckets.line(b, due, id)
        more = 1
      end
    end
    if #left - 1 < buckets.line_count(b.text) then buckets.replace_lines(b, left) end
  end
end
if #ids == 0 then return record_reply({ 0, more, before }) end

redis.call('HLEN', MESSAGES)
local any_grouped = redis.call('ZCARD', GROUPS) > 0
for i, record in ipairs(redis.call('HMGET', RECORDS, unpack(ids))) do
  local epoch, _, _, refcount = parse_record(record)
  if record then changes.remove(ids[i], epoch, refcount) end
end
record_request(ARGV[1], ARGV[2], now) -- the reply is known only after the next command
local removed = redis.call('HDEL', MESSAGES, unpack(ids))
if any_grouped then redis.call('ZREM', GROUPS, unpack(ids)) end
if due_removed > 0 then redis.call('ZREM', key, unpack(ids, 1, due_removed)) end
--@flow
if state == 'holders' then redis.call('ZREM', DEAD, unpack(ids)) end
--@end
buckets.write()
changes.write()
local resumed
--@flow
for _, id in ipairs(ids) do lanes.gone(id) end
resumed = lanes.write(now)
if state == 'holders' then write('HDEL', HOLDERS, ids) end -- also ones that no state has
--@end
return record_reply({ removed, more, before, resumed })
