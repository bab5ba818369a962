#!lua flags=allow-oom
--- Ends expired leases, then gives ready messages, earliest first, under one new lease.
-- ARGV   1 most messages wanted, 2 lease length in ms, 3 lease id
--        4 "1" when an earlier call with this lease id may have been done and its reply lost
-- Reply  {now in us, earliest thing to come in ms or -1, more, deadline or 0, lease text, envelopes,
--         records or 0, ids that died}; -2
-- Safe   LEASE is written first; every other key was read. A repeated call finds its lease and gives the same.
-- The keys of a queue, the same nine in every script (see keys.go).
local DUE, MSG, LEASE, EXPIRY, TRIES, DEAD, DONE, META, WAKE = unpack(KEYS)
local meta = redis.call('HMGET', META, 'format', 'paused', 'longest')
-- A queue of another format is not touched.
if meta[1] and meta[1] ~= "1" then return -2 end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local now_us = clock[1] * 1000000 + clock[2]
if not meta[1] then return { now_us, -1, 0, 0, '', {}, 0, {} } end
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
local died = {}

local function recorded(ids)
  if #ids > 0 and redis.call('HLEN', TRIES) > 0 then return redis.call('HMGET', TRIES, unpack(ids)) end
  return nil
end

if ARGV[4] == '1' then
  local text = redis.call('HGET', LEASE, ARGV[3])
  if text then
    local ids = {}
    for id in each_held(text) do ids[#ids + 1] = id end
    return { now_us, now, 1, tonumber(redis.call('ZSCORE', EXPIRY, ARGV[3])), text,
      redis.call('HMGET', MSG, unpack(ids)), recorded(ids) or 0, died }
  end
end

-- Leases whose deadline has passed end here, at most 100 of them and about 500 messages.
redis.call('ZCARD', DUE)
local next_expiry = tonumber(redis.call('ZRANGE', EXPIRY, 0, 0, 'WITHSCORES')[2])
if next_expiry and next_expiry <= now then
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
  local expired = redis.call('ZRANGE', EXPIRY, '-inf', now, 'BYSCORE', 'LIMIT', 0, 100, 'WITHSCORES')
  redis.call('ZCARD', DEAD)
  redis.call('HLEN', MSG)
  redis.call('ZCARD', WAKE)
  local ended, again, dead, reaped = {}, {}, {}, 0
  for i = 1, #expired, 2 do
    if reaped >= 500 then break end
    local lease, deadline = expired[i], expired[i + 1]
    ended[#ended + 1] = lease
    local ids, held = {}, {}
    for id, _, epoch, max in each_held(redis.call('HGET', LEASE, lease) or '') do
      ids[#ids + 1] = id
      held[#held + 1] = { tonumber(epoch) or 0, tonumber(max) or 20 }
    end
    reaped = reaped + #ids
    local records = recorded(ids)
    for k, id in ipairs(ids) do
      local recorded = latest(id, records and records[k])
      local epoch, attempts, _, pins = parse(recorded)
      if epoch ~= held[k][1] then
        keep(id, unpin(recorded)) -- cancelled meanwhile
      elseif attempts + 1 >= held[k][2] then
        died[#died + 1] = id
        dead[#dead + 1] = now
        dead[#dead + 1] = id
        keep(id, record(epoch, attempts + 1, '1', pins, deadline .. '\tlease_expired\t' .. "lease expired: its worker died or stalled"))
      else
        again[#again + 1] = deadline
        again[#again + 1] = id
        keep(id, record(epoch, attempts + 1, '1', pins, '\t\t' .. "lease expired: its worker died or stalled"))
      end
    end
  end
  write('ZADD', DUE, again)
  write('ZADD', DEAD, dead)
  write_tries()
  write('HDEL', LEASE, ended)
  write('ZREM', EXPIRY, ended)
  next_expiry = tonumber(redis.call('ZRANGE', EXPIRY, 0, 0, 'WITHSCORES')[2])
end

local max = tonumber(ARGV[1])
local range = {}
if not meta[2] then range = redis.call('ZRANGE', DUE, '-inf', now, 'BYSCORE', 'LIMIT', 0, max, 'WITHSCORES') end
local n = #range / 2
local ids = {}
for i = 1, n do ids[i] = range[2 * i - 1] end
local longest = tonumber(meta[3] or 0)
if n * longest > 4194304 then
  -- Long messages have been here: take only as many as the reply may hold.
  local bytes = 0
  for i = 1, n do
    bytes = bytes + redis.call('HSTRLEN', MSG, ids[i])
    if bytes > 4194304 and i > 1 then
      for k = i, n do
        ids[k] = nil
        range[2 * k - 1] = nil
        range[2 * k] = nil
      end
      n = i - 1
      break
    end
  end
end
local next_due_ms = not meta[2] and tonumber(redis.call('ZRANGE', DUE, n, n, 'WITHSCORES')[2]) or nil
local unreaped = next_expiry and next_expiry <= now
if n == 0 then
  local coming = math.min(next_due_ms or math.huge, next_expiry or math.huge)
  return { now_us, coming == math.huge and -1 or coming, unreaped and 1 or 0, 0, '', {}, 0, died }
end

local envelopes = redis.call('HMGET', MSG, unpack(ids))
local records = recorded(ids)
local lines, given, given_records, dead, dead_records, g, d = {}, {}, records and {} or 0, {}, {}, 0, 0

-- Flags from 1 to 4 and from 128 matter here: attempts, expiry, unreadable. Mostly there are none of them and no
-- records, and all is given as it is.
local byte, usual = string.byte, not records
for i = 1, usual and n or 0 do
  local flags = envelopes[i] and byte(envelopes[i]) or 128
  if flags >= 128 or flags % 8 ~= 0 then
    usual = false
    break
  end
end
if usual then lines, given, g = range, envelopes, n end

for i = 1, usual and 0 or n do
  local envelope = envelopes[i]
  local flags = envelope and (byte(envelope) or 128)
  if flags then
    local epoch, attempts, delivered, pins, rest = parse(records and records[i])
    local due, reason, limit = range[2 * i], nil, ''
    if flags >= 128 then
      reason = 'unreadable\t' .. "unreadable: these bytes are no message of this version"
    else
      local from = 2
      if flags % 2 == 1 then
        local hi, lo = byte(envelope, 2, 3)
        limit = (hi or 0) * 256 + (lo or 0)
        from = 4
      end
      if flags % 8 >= 2 and delivered == '0' then
        local a, b, c, e, f, l = byte(envelope, from, from + 5)
        local expiry = (((((a or 0) * 256 + (b or 0)) * 256 + (c or 0)) * 256 + (e or 0)) * 256 + (f or 0)) * 256 + (l or 0)
        if flags % 4 >= 2 then expiry = expiry + tonumber(due) end
        if expiry <= now then reason = 'expired\t' .. "expired: not delivered in time" end
      end
    end
    if reason then
      d = d + 2
      died[#died + 1] = ids[i]
      dead[d - 1] = now
      dead[d] = ids[i]
      dead_records[d - 1] = ids[i]
      dead_records[d] = record(epoch, attempts, delivered, pins, due .. '\t' .. reason)
    else
      g = g + 1
      lines[2 * g - 1] = ids[i]
      if limit ~= '' then due = due .. ' ' .. epoch .. ' ' .. limit
      elseif epoch > 0 then due = due .. ' ' .. epoch end
      lines[2 * g] = due
      given[g] = envelope
      if records then given_records[g] = records[i] end
    end
  end
end

-- All that follows can no longer fail: what it writes was read above, LEASE is written first.
local more = n == max or unreaped or next_due_ms and next_due_ms <= now
if more then redis.call('ZCARD', WAKE) end
if d > 0 then redis.call('ZCARD', DEAD) end
local text, deadline = '', 0
if g > 0 then
  text = lease_text(lines)
  deadline = now + tonumber(ARGV[2])
  redis.call('HSET', LEASE, ARGV[3], text)
  redis.call('ZADD', EXPIRY, deadline, ARGV[3])
  next_expiry = math.min(next_expiry or deadline, deadline)
end
redis.call('ZREMRANGEBYRANK', DUE, 0, n - 1)
if d > 0 then
  redis.call('ZADD', DEAD, unpack(dead))
  redis.call('HSET', TRIES, unpack(dead_records))
end
local coming = math.min(next_due_ms or math.huge, next_expiry or math.huge)
if coming == math.huge then coming = -1
elseif more then redis.call('ZADD', WAKE, coming, 'm') end
return { now_us, coming, more and 1 or 0, deadline, text, given, given_records, died }
