#!lua flags=allow-oom
--- Acks messages of any number of leases: they are gone.
-- ARGV   1 "1" when an earlier call with these messages may have been done and its reply lost
--        2 number of ids to remember, then for each: id, ms
--        then for each lease: lease id, number of runs, number of single messages,
--        for each run: a piece of the lease's text with all its lines, number of messages in it, their ids
--        for each single message: its token
-- Reply  positions (from 1, over all, runs first within each lease) of the messages that were not held
-- Safe   MSG is written first; every other key that is written was read.
-- The keys of a queue, the same nine in every script (see keys.go).
local DUE, MSG, LEASE, EXPIRY, TRIES, DEAD, DONE, META, WAKE = unpack(KEYS)
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
-- A lease is a text of an empty line and two lines for each message it holds: the id, and the due time followed,
-- where they are not the usual ones, by a blank and the epoch, and a blank and the highest number of attempts.
-- It lists exactly what it holds: what is settled leaves it. A token names a message as its holder does: the id, and a
-- tab and the epoch where that is not zero.
local function each_held(text)
  return string.gmatch(text, '([^\n]+)\n(%d+) ?(%d*) ?(%d*)')
end

local function lease_text(lines)
  return '\n' .. table.concat(lines, '\n') .. '\n'
end

local leases = {}

-- load reads a lease once. A lease that has expired or ended has no text.
local function load(lease, now)
  local l = leases[lease]
  if l then return l end
  l = { held = {}, left = 0 }
  local deadline = redis.call('ZSCORE', EXPIRY, lease)
  local text = redis.call('HGET', LEASE, lease)
  if text and deadline and tonumber(deadline) > now then
    l.text = text
    for id, due, epoch, max in each_held(text) do
      local token = id
      if epoch ~= '' and epoch ~= '0' then token = id .. '\t' .. epoch end
      l.held[token] = { id = id, due = due, epoch = tonumber(epoch) or 0, max = tonumber(max) or 20 }
      l.left = l.left + 1
    end
  end
  leases[lease] = l
  return l
end

-- drop takes a message out of a lease that was loaded.
local function drop(l, token)
  l.held[token] = nil
  l.left = l.left - 1
  l.changed = true
end

-- let_go: the lease lists the id with an epoch that is past, because the message was cancelled. The lease
-- forgets it, and the record has a pin less.
local function let_go(l, token, h, recorded)
  drop(l, token)
  keep(h.id, unpin(recorded))
end

-- write_leases writes back the leases that changed, in the order their messages had.
local function write_leases()
  for lease, l in pairs(leases) do
    if l.changed then
      if l.left == 0 then
        redis.call('HDEL', LEASE, lease)
        redis.call('ZREM', EXPIRY, lease)
      else
        local lines = {}
        for id, due, epoch, max in each_held(l.text) do
          local token = id
          if epoch ~= '' and epoch ~= '0' then token = id .. '\t' .. epoch end
          if l.held[token] then
            lines[#lines + 1] = id
            if max ~= '' then due = due .. ' ' .. epoch .. ' ' .. max
            elseif epoch ~= '' then due = due .. ' ' .. epoch end
            lines[#lines + 1] = due
          end
        end
        redis.call('HSET', LEASE, lease, lease_text(lines))
      end
    end
  end
end
local refused, gone, ended, texts, position = {}, {}, {}, {}, 0
local plain = redis.call('HLEN', TRIES) == 0

-- ack_held acks the messages that tokens name, one by one.
local function ack_held(l, tokens)
  local candidates, ids = {}, {}
  for _, token in ipairs(tokens) do
    position = position + 1
    local h = l.held[token]
    if h and not h.position then
      h.token, h.position = token, position
      candidates[#candidates + 1] = h
      ids[#ids + 1] = h.id
    elseif not (ARGV[1] == '1' and redis.call('HEXISTS', MSG, string.match(token, '^[^\t]+')) == 0) then
      refused[#refused + 1] = position
    end
  end
  local records = not plain and #ids > 0 and redis.call('HMGET', TRIES, unpack(ids))
  for i, h in ipairs(candidates) do
    local recorded = latest(h.id, records and records[i])
    local epoch, _, _, pins = parse(recorded)
    if epoch ~= h.epoch then
      refused[#refused + 1] = h.position
      let_go(l, h.token, h, recorded)
    else
      gone[#gone + 1] = h.id
      if recorded then keep(h.id, tombstone(epoch, pins)) end
      drop(l, h.token)
    end
  end
end

-- without gives a lease's text without its runs, nil when it does not have one of them. It is for leases of
-- which no message is unusual, and never looks at single messages.
local function without(text, a, runs)
  for _ = 1, runs do
    local from, to = string.find(text, ARGV[a], 1, true)
    if not from then return nil end
    text = string.sub(text, 1, from) .. string.sub(text, to + 1)
    a = a + 2 + tonumber(ARGV[a + 1])
  end
  return text
end

local remembered = tonumber(ARGV[2])
if remembered > 0 then redis.call('ZCARD', DONE) end
local a = 3 + 2 * remembered
while a <= #ARGV do
  local lease, runs, singles = ARGV[a], tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
  a = a + 3
  local text
  if plain and singles == 0 then
    local deadline = redis.call('ZSCORE', EXPIRY, lease)
    local held = redis.call('HGET', LEASE, lease)
    if held and deadline and tonumber(deadline) > now then text = without(held, a, runs) end
  end
  local tokens = {}
  for _ = 1, runs do
    local k = tonumber(ARGV[a + 1])
    for i = a + 2, a + 1 + k do
      if text then gone[#gone + 1] = ARGV[i] else tokens[#tokens + 1] = ARGV[i] end
    end
    if text then position = position + k end
    a = a + 2 + k
  end
  if text == '\n' then
    ended[#ended + 1] = lease
  elseif text then
    texts[#texts + 1] = lease
    texts[#texts + 1] = text
  else
    for i = a, a + singles - 1 do tokens[#tokens + 1] = ARGV[i] end
    a = a + singles
    ack_held(load(lease, now), tokens)
  end
end

write('HDEL', MSG, gone)
write_tries()
write('HDEL', LEASE, ended)
write('ZREM', EXPIRY, ended)
write('HSET', LEASE, texts)
write_leases()
if remembered > 0 then
  local acked = {}
  for _, id in ipairs(gone) do acked[id] = true end
  for i = 3, 2 + 2 * remembered, 2 do
    if acked[ARGV[i]] then redis.call('ZADD', DONE, now + tonumber(ARGV[i + 1]), ARGV[i]) end
  end
  write('ZREM', DONE, redis.call('ZRANGE', DONE, '-inf', now, 'BYSCORE', 'LIMIT', 0, 500))
end
return refused
