#!lua flags=allow-oom
--- Removes messages of a state, or all of them.
-- ARGV   1 "scheduled", "ready", "dead" or "" (all, leased ones and leases too), 2 latest due time or time of
--        death in ms or "", then ids (dead ones)
-- Reply  {number, 1 when there may be more, latest time used}; -2
-- Safe   every key that is written was read; removing all deletes whole keys, which cannot fail and is freed
--        in the background.
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
if ARGV[1] == '' then
  local count = redis.call('HLEN', MSG)
  redis.call('UNLINK', DUE, MSG, LEASE, EXPIRY, TRIES, DEAD, WAKE)
  redis.call('HDEL', META, 'longest')
  return { count, 0, now }
end

local key = ARGV[1] == 'dead' and DEAD or DUE
local before = tonumber(ARGV[2]) or (ARGV[1] == 'scheduled' and math.huge or now)
local ids, more = {}, 0
if #ARGV > 2 then
  local scores = redis.call('ZMSCORE', DEAD, unpack(ARGV, 3))
  for i, score in ipairs(scores) do
    if score then ids[#ids + 1] = ARGV[i + 2] end
  end
else
  local low, high = '-inf', before
  if ARGV[1] == 'scheduled' then
    low = string.format('(%.0f', now)
    if before == math.huge then
      high = redis.call('ZRANGE', DUE, -1, -1, 'WITHSCORES')[2] or now
      before = tonumber(high)
    end
  end
  ids = redis.call('ZRANGE', key, low, high, 'BYSCORE', 'LIMIT', 0, 500)
  if #ids == 500 then more = 1 end
end
if #ids == 0 then return { 0, 0, before } end

redis.call('HLEN', MSG)
for i, recorded in ipairs(redis.call('HMGET', TRIES, unpack(ids))) do
  local epoch, _, _, pins = parse(recorded)
  if recorded then keep(ids[i], tombstone(epoch, pins)) end
end
local removed = redis.call('HDEL', MSG, unpack(ids))
redis.call('ZREM', key, unpack(ids))
write_tries()
return { removed, more, before }
