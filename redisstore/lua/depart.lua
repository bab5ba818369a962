#!lua flags=allow-oom
--- Takes messages, ids within their dedup windows, and sends with a key out of a queue, and puts them into its outbox.
-- KEYS   the keys of every script, then the two of sends with a key and the outbox
-- ARGV   1 session, 2 request number, 3 name of the queue, 4 of the sub-queue that they depart to, 5 number of ids,
--        then ids, then keys of sends
--@flow
--        then the keys that depart without messages, with \n behind each
--@end
-- Reply  {"1" if the outbox was not empty, so that nothing has departed; ids that are leased; "1" if more would depart;
--        number of the parcel, names of the two sub-queues and what the parcel has, nothing if the outbox is empty;
--        keys of sends of leased messages; number of the last parcel or 0; keys of leased messages, and those of the
--        keys that stay}; NEWER
-- Safe   SESSIONS is written first; every other key was read before. The outbox takes as much memory as the queue gives
--        back. A call that is repeated finds its parcel in the outbox, or replies that more may depart. OUTBOX has
--        "last", the number of the last parcel, and unless it is empty "from", "to" and "data"; the other fields are
--        those of arrive.lua.
--@include keys
--@include format
--@include clock
--@include record_changes
--@include buckets
--@include session
--@flow
--@include leave_lanes
--@include depart_keys
--@end
local ONCE, OLD_ONCE, OUTBOX = unpack(KEYS, QUEUE_KEYS + 1)
local format, packed = unpack(redis.call('HMGET', META, 'format', 'packed_messages'))
if not writes(format) then return NEWER end
local now, now_us = read_clock()
local last, from, to, data = unpack(redis.call('HMGET', OUTBOX, 'last', 'from', 'to', 'data'))
local previous, since = previous_reply(ARGV[1], ARGV[2])
if previous or data then
  if previous and format then redis.call('HSET', META, 'format', FORMAT) end -- see safely.go
  if not previous then record_request(ARGV[1], ARGV[2], now, nil, since) end
  local number = tonumber(last or '') or 0
  return { 1, {}, previous and 1 or 0, data and { number, from, to, data } or {}, {}, number }
end

local count = tonumber(ARGV[5])
local ids = {}
for i = 1, count do ids[i] = ARGV[5 + i] end
local due = count > 0 and redis.call('ZMSCORE', DUE, unpack(ids)) or {}
local dead = count > 0 and redis.call('ZMSCORE', DEAD, unpack(ids)) or {}
local records = count > 0 and redis.call('HMGET', RECORDS, unpack(ids)) or {}
local dedup = count > 0 and redis.call('ZMSCORE', DEDUP, unpack(ids)) or {}
local any_grouped = redis.call('ZCARD', GROUPS) > 0
local buckets, changes = open_buckets(packed), new_record_changes()
local messages, windows, sends = {}, {}, {} -- the parcel
local leased, deleted, due_removed, dead_removed, dedup_removed, seen, bytes, more = {}, {}, {}, {}, {}, {}, 0, 0
local busy = {}
--@flow
local lanes, limits = leave_lanes(), read_limits(now_us)
read_slots()

-- add_busy adds the key of a leased message, given its value and record, which may be those of its successor.
local function add_busy(id, value, record)
  local epoch, _, _, _, rest = parse_record(record)
  local name = key_of(successor_due(rest) and read_original(id, epoch) or value)
  if limits.keyed and name ~= '' then busy[#busy + 1] = name end
end
--@end

-- place_of returns the due time of a message, as text, and its bucket if it is packed, given its value, which may be
-- nil, and its score in DUE. It returns nil for a leased one.
local function place_of(id, value, score)
--@plain
  if score then return score end
--@end
--@flow
  if score then return due_text_in(score) end
--@end
  local at, b
  if buckets.packed > 0 then at, b = buckets.find(id, value) end
  return at and string.format('%.0f', at), b
end

for i, id in ipairs(ids) do
  local exists = not seen[id] and redis.call('HEXISTS', MESSAGES, id) == 1
  local size = exists and redis.call('HSTRLEN', MESSAGES, id) or 0 -- 0 too for one without bytes, which is unreadable
  local leaves = not seen[id] -- the dedup window of the id, too
  seen[id] = true
  if not exists then -- there is no such message
  elseif #deleted > 0 and bytes + size + #(records[i] or '') > MAX_DEPARTURE_BYTES then
    more, leaves = 1, false
  else
    local value = redis.call('HGET', MESSAGES, id)
    local at, b
    if due[i] or not dead[i] then at, b = place_of(id, value, due[i]) end
    if not at and not dead[i] then
      leased[#leased + 1] = id
      leaves = false
--@flow
      add_busy(id, value, records[i])
--@end
    else
      bytes = bytes + size + #(records[i] or '')
      local epoch, attempts, delivered, refcount, rest = parse_record(records[i])
      deleted[#deleted + 1] = id
      if due[i] then
        due_removed[#due_removed + 1] = id
--@flow
        lanes.add(id, due[i], value)
--@end
      end
      if dead[i] then dead_removed[#dead_removed + 1] = id end
      if b then buckets.remove_line(b, tonumber(at), id) end
--@flow
      lanes.gone(id)
--@end
      if records[i] then changes.remove(id, epoch, refcount) end
      if #value >= 7 and string.byte(value) == 128 then value = string.sub(value, 8) end
      for _, part in ipairs({ id, value, at or '', not at and dead[i] or '', attempts or 0, delivered, rest }) do
        messages[#messages + 1] = tostring(part)
      end
    end
  end
  if leaves and dedup[i] then
    dedup_removed[#dedup_removed + 1] = id
    if tonumber(dedup[i]) > now then windows[#windows + 1], windows[#windows + 2] = id, dedup[i] end
  end
end

local once_removed, kept, gone = {}, {}, {}
for _, id in ipairs(deleted) do gone[id] = true end
redis.call('HLEN', ONCE)
redis.call('HLEN', OLD_ONCE)
--@plain
for a = 6 + count, #ARGV do
--@end
--@flow
for a = 6 + count, #ARGV - 1 do
--@end
  local key = ARGV[a]
  local value = redis.call('HGET', ONCE, key) or redis.call('HGET', OLD_ONCE, key)
  if value and key ~= 'since' and struct.unpack('>I6', value) > now then
    local id = string.sub(value, 29)
    local live = not gone[id] and redis.call('HEXISTS', MESSAGES, id) == 1
    local held = live and not redis.call('ZSCORE', DEAD, id) and not place_of(id, nil, redis.call('ZSCORE', DUE, id))
    if held then
      kept[#kept + 1] = key
    else
      once_removed[#once_removed + 1] = key
      sends[#sends + 1], sends[#sends + 2] = key, value
    end
  end
end

local parcel = { messages, windows, sends } -- and, of a queue with turns, places, holds and keys
--@flow
parcel[5] = departing_holds(limits, deleted)
--@end
if format then record_request(ARGV[1], ARGV[2], now, nil, since) end
write('HDEL', MESSAGES, deleted)
if any_grouped then write('ZREM', GROUPS, deleted) end
write('ZREM', DUE, due_removed)
buckets.write()
write('ZREM', DEAD, dead_removed)
write('ZREM', DEDUP, dedup_removed)
changes.write()
write('HDEL', ONCE, once_removed)
write('HDEL', OLD_ONCE, once_removed)
--@flow
lanes.write(now)
local names = {}
for name in string.gmatch(ARGV[#ARGV], '[^\n]+') do names[#names + 1] = name end
parcel[4], parcel[6] = lanes.places, take_keys(limits, names, busy)
--@end
local number, departs = tonumber(last or '') or 0, {}
if #messages + #windows + #sends + #(parcel[6] or {}) > 0 then
  number = number + 1
  departs = { number, ARGV[3], ARGV[4], cmsgpack.pack(parcel) }
  redis.call('HSET', OUTBOX, 'last', number, 'from', departs[2], 'to', departs[3], 'data', departs[4])
end
return { 0, leased, more, departs, kept, number, busy }
