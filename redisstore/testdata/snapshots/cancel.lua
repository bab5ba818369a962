#!lua flags=allow-oom
--- Removes living messages, whatever their state. A leased one leaves a tombstone, by which its lease learns.
-- ARGV   ids
-- Reply  for each id the state it was in, or ""; -2
-- Safe   every key that is written was read.
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
local due = redis.call('ZMSCORE', DUE, unpack(ARGV))
local dead = redis.call('ZMSCORE', DEAD, unpack(ARGV))
local records = redis.call('HMGET', TRIES, unpack(ARGV))
local states, gone, undue, undead, seen = {}, {}, {}, {}, {}
for i, id in ipairs(ARGV) do
  local state = ''
  if not seen[id] and redis.call('HEXISTS', MSG, id) == 1 then
    seen[id] = true
    local epoch, _, _, pins = parse(records[i])
    gone[#gone + 1] = id
    if due[i] then
      state = tonumber(due[i]) > now and 'scheduled' or 'ready'
      undue[#undue + 1] = id
    elseif dead[i] then
      state = 'dead'
      undead[#undead + 1] = id
    else
      state = 'leased'
      epoch, pins = epoch + 1, pins + 1
    end
    if state == 'leased' or records[i] then keep(id, tombstone(epoch, pins)) end
  end
  states[i] = state
end
write('HDEL', MSG, gone)
write('ZREM', DUE, undue)
write('ZREM', DEAD, undead)
write_tries()
return states
