#!lua flags=allow-oom
--- Makes dead messages live again, with their attempts back at zero.
-- Their expiry no longer counts.
-- ARGV   1 due ("+ms" from now, or ms since 1970), 2 latest time of death in ms or "" for now, then ids;
--        without ids: the 500 that died first
-- Reply  {number, 1 when there may be more, latest time of death used}; -2
-- Safe   WAKE is written first; every other key that is written was read.
-- The keys of a queue, the same nine in every script (see keys.go).
local DUE, MSG, LEASE, EXPIRY, TRIES, DEAD, DONE, META, WAKE = unpack(KEYS)
local meta = redis.call('HMGET', META, 'format')
-- A queue of another format is not touched.
if meta[1] and meta[1] ~= "1" then return -2 end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
-- A record of TRIES holds what is unusual about a message. Fields are separated by tabs:
--   epoch      raised when the message is cancelled while leased, so that a message sent later under the same
--              id cannot be taken for it
--   attempts   failed so far; x in a tombstone, which has no living message and only keeps the epoch
--   delivered  1 once the message was given to a handler
--   pins       leases that still list the id with a lower epoch; the record must stay until they let go
--   rest       of a dead message: due, reason code, error text; of a living one: empty, empty, last error text
local function parse(record)
  if not record then return 0, 0, '0', 0, '' end
  local epoch, attempts, delivered, pins, rest = string.match(record, '^(%d+)\t([%dx]+)\t([01])\t(%d+)\t(.*)$')
  return tonumber(epoch), tonumber(attempts), delivered, tonumber(pins), rest
end

local function record(epoch, attempts, delivered, pins, rest)
  return epoch .. '\t' .. attempts .. '\t' .. delivered .. '\t' .. pins .. '\t' .. rest
end

-- The record after a message is gone: nil, or a tombstone while old leases still list its id.
local function tombstone(epoch, pins)
  if pins > 0 then return record(epoch, 'x', '0', pins, '') end
  return nil
end

-- The record once a lease has let go of an id that it listed with an epoch that is past.
local function unpin(recorded)
  local epoch, attempts, delivered, pins, rest = parse(recorded)
  if attempts then return record(epoch, attempts, delivered, pins - 1, rest) end
  return tombstone(epoch, pins - 1)
end
-- Writes gathered while a script checks, done together at its end. Every key was read before, so that a key of
-- a wrong type fails the script before its first write. Lists are bounded by 500 items, twice over at
-- most, well below what unpack can take.
local changed = {}

-- keep notes the new record of a message, nil for none.
local function keep(id, value)
  changed[id] = value or false
end

-- latest is the record of a message as this script will leave it, given what is stored.
local function latest(id, stored)
  if changed[id] == nil then return stored end
  return changed[id]
end

local function write(command, key, list)
  for i = 1, #list, 4000 do
    redis.call(command, key, unpack(list, i, math.min(i + 3999, #list)))
  end
end

local function write_tries()
  local set, unset = {}, {}
  for id, value in pairs(changed) do
    if value then
      set[#set + 1] = id
      set[#set + 1] = value
    else
      unset[#unset + 1] = id
    end
  end
  write('HSET', TRIES, set)
  write('HDEL', TRIES, unset)
end
-- wake puts the marker for one waiter when due is earlier than the queue's earliest message, which is head.
local function wake(head, due)
  if due and (not head[2] or due < tonumber(head[2])) then
    redis.call('ZADD', WAKE, due, 'm')
  end
end
local at = tonumber(ARGV[1])
if string.byte(ARGV[1]) == 43 then at = at + now end
local before = tonumber(ARGV[2]) or now
local ids, more = {}, 0
if #ARGV > 2 then
  local scores = redis.call('ZMSCORE', DEAD, unpack(ARGV, 3))
  local seen = {}
  for i, score in ipairs(scores) do
    local id = ARGV[i + 2]
    if score and not seen[id] then
      seen[id] = true
      ids[#ids + 1] = id
    end
  end
else
  ids = redis.call('ZRANGE', DEAD, '-inf', before, 'BYSCORE', 'LIMIT', 0, 500)
  if #ids == 500 then more = 1 end
end
if #ids == 0 then return { 0, 0, before } end

local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
local records = redis.call('HMGET', TRIES, unpack(ids))
local due = {}
for i, id in ipairs(ids) do
  due[#due + 1] = at
  due[#due + 1] = id
  local epoch, _, _, pins = parse(records[i])
  keep(id, record(epoch, 0, '1', pins, ''))
end
wake(head, at)
write('ZADD', DUE, due)
write('ZREM', DEAD, ids)
write_tries()
return { #ids, more, before }
