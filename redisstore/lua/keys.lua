#!lua flags=no-writes
--- Reads keys of a queue with turns, with their states.
-- ARGV   1 "waiting": in order, the ones with sorted messages; "given": some keys; "limits": only the names of all with
--        limits of their own
--        waiting: 2 where to begin in LANES, as ZRANGE takes it; 3 maximum number, besides messages without a key.
--        given: the keys
--@flow
--        Two more, which return only names: 1 "holders": of some keys that a sorted message holds, which is in no lane;
--        "halted": of some that a dead one halts. These and "limits" return a part at a time. 2 cursor
--@end
--@plain
-- Reply  {}: the queue has no turns; NEWER
--@end
--@flow
-- Reply  {}: the queue has no turns; {now in us; concurrency, n, per_us, burst and weight of each key, as text or "";
--        and their order and "1" if a message holds one of them, or ""; where to go on, "" at the end; for each key:
--        {key, number of its messages, due time of the first in ms or -1, state or false, its own limits or false}, or
--        the names}; NEWER
--@end
--@include keys
--@include format
--@flow
--@include clock
--@include lane_entries
--@include overrides
--@end
local format = redis.call('HGET', META, 'format')
if not reads(format) then return NEWER end
--@plain
return {}
--@end
--@flow
local _, now_us = read_clock()
local meta = redis.call('HMGET', META, 'flow_keyed', 'flow_key_concurrency', 'flow_key_n', 'flow_key_per_us',
  'flow_key_burst', 'flow_key_weight', 'flow_key_order', 'flow_urgency')
if not meta[1] then return {} end
local limits = {}
for i = 1, 6 do limits[i] = meta[i + 1] or '' end
limits[7] = limits[6] ~= '' and redis.call('HLEN', HOLDERS) > 0 and '1' or ''
if ARGV[1] == 'limits' then
  local step, names = redis.call('HSCAN', KEY_FLOWS, ARGV[2], 'COUNT', MAX_KEYS_READ), {}
  for i = 1, #step[2], 2 do
    if cut_mark(step[2][i + 1]) then names[#names + 1] = step[2][i] end
  end
  return { now_us, limits, step[1] ~= '0' and step[1] or '', names }
end
if ARGV[1] == 'halted' or ARGV[1] == 'holders' then
  local halted, names = ARGV[1] == 'halted', {}
  if limits[7] == '' or halted and limits[6] ~= 'halt' then return { now_us, limits, '', names } end
  local step = halted and redis.call('ZSCAN', HALTED, ARGV[2], 'COUNT', MAX_KEYS_READ)
    or redis.call('HSCAN', HOLDERS, ARGV[2], 'COUNT', MAX_KEYS_READ)
  for i = 1, #step[2], 2 do names[#names + 1] = step[2][halted and i or i + 1] end
  local states = not halted and names[1] and redis.call('HMGET', KEY_STATES, unpack(names)) or {}
  for i = #states, 1, -1 do
    if not string.find(states[i] or '', '\tr[^\t]*$') then table.remove(names, i) end
  end
  return { now_us, limits, step[1] ~= '0' and step[1] or '', names }
end
local looked, rows, classes = 0, {}, meta[8] and 3 or 1

-- look_at looks whether the first entries of a lane of a key are valid, up to a maximum, and counts all entries behind
-- them, also ones that are not valid any more. It returns the count and the due time of the first one. It does not read
-- keys of messages, so an entry of a message that was replaced by one with another key and the same due time counts
-- until it is first in its lane. seen are the ids of the valid entries of the key: each counts once.
local function look_at(key, class, most, seen)
  local from, to = lane_range(key, class)
  local entries = redis.call('ZRANGE', LANES, from, to, 'BYLEX', 'LIMIT', 0, most)
  looked = looked + #entries
  local ids, dues, count, first = {}, {}, 0, nil
  for i, entry in ipairs(entries) do
    dues[i], ids[i] = string.match(string.sub(entry, #key + 2), '^(%d%d%d%d%d%d%d%d%d%d%d%d%d%d)%d%d%d(.*)$')
    ids[i] = ids[i] or ''
  end
  for i, score in ipairs(ids[1] and redis.call('ZMSCORE', DUE, unpack(ids)) or {}) do
    local due = tonumber(dues[i] or '')
    if score and due and tonumber(score) == due + SORTED and not seen[ids[i] ] then
      count, first, seen[ids[i] ] = count + 1, first or due, true
    end
  end
  if #entries == most then
    count = count + redis.call('ZLEXCOUNT', LANES, '(' .. entries[most], to)
    if count > 0 then first = first or tonumber(dues[most]) end
  end
  return count, first
end

-- add_key adds a row for a key, unless only_waiting is true and it has no entries. most is how many entries it looks
-- at.
local function add_key(key, most, only_waiting)
  local count, first, seen = 0, nil, {}
  for class = 1, classes do
    local n, due = look_at(key, class, math.ceil(most / classes), seen)
    count, first = count + n, math.min(first or due or math.huge, due or math.huge)
  end
  if count == 0 and only_waiting then return end
  local state = redis.call('HGET', KEY_STATES, key)
  local holder = limits[7] ~= '' and string.match(state or '', '\tr([^\t]*)$')
  local score = holder and tonumber(redis.call('ZSCORE', DUE, holder) or '')
  if score and score >= SORTED then count, first = count + 1, math.min(first, score - SORTED) end
  local own = cut_mark(redis.call('HGET', KEY_FLOWS, key))
  rows[#rows + 1] = { key, count, count > 0 and first or -1, state, own or false }
end

if ARGV[1] == 'given' then
  for i = 2, #ARGV do
    add_key(ARGV[i], #ARGV == 2 and MAX_KEYS_LOOKED or looked < MAX_KEYS_LOOKED and MAX_LANE_LOOKED or 1)
  end
  return { now_us, limits, '', rows }
end
local at, most, keys = ARGV[2], tonumber(ARGV[3]), 0
while #rows < most + (rows[1] and rows[1][1] == '' and 1 or 0) and looked < MAX_KEYS_LOOKED and keys < MAX_KEYS_READ do
  local entry = redis.call('ZRANGE', LANES, at, '+', 'BYLEX', 'LIMIT', 0, 1)[1]
  if not entry then return { now_us, limits, '', rows } end
  local key
  at, key = next_lanes(entry)
  if key then add_key(key, MAX_LANE_LOOKED, true) end
  keys = keys + 1
end
return { now_us, limits, at, rows }
--@end
