#!lua
--- Adds messages; all of them or none, save for ids that are living or remembered.
-- ARGV   1 "1" when the queue's name is registered and the queue may be created
--        2 "1" when an earlier call with these messages may have been done and its reply lost
--        3 length of the longest envelope
--        then for each message: id, due ("+ms" from now, or ms since 1970), envelope
-- Reply  positions (from 1) of the messages that are duplicates; -1; -2
-- Safe   no allow-oom: a full server refuses the script whole. WAKE is written first; every other key was read.
-- The keys of a queue, the same nine in every script (see keys.go).
local DUE, MSG, LEASE, EXPIRY, TRIES, DEAD, DONE, META, WAKE = unpack(KEYS)
local meta = redis.call('HMGET', META, 'format', 'longest')
-- A queue of another format is not touched.
if meta[1] and meta[1] ~= "1" then return -2 end
if not meta[1] and ARGV[1] ~= '1' then return -1 end
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
-- wake puts the marker for one waiter when due is earlier than the queue's earliest message, which is head.
local function wake(head, due)
  if due and (not head[2] or due < tonumber(head[2])) then
    redis.call('ZADD', WAKE, due, 'm')
  end
end
local count = (#ARGV - 3) / 3
local ids = {}
for i = 1, count do ids[i] = ARGV[3 * i + 1] end

local again = ARGV[2] == '1'
local stored
if count * tonumber(meta[2] or 0) <= 4194304 then
  stored = redis.call('HMGET', MSG, unpack(ids))
else
  stored = {}
  for i = 1, count do
    stored[i] = again and redis.call('HGET', MSG, ids[i]) or redis.call('HEXISTS', MSG, ids[i]) == 1
  end
end
local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
local tries = redis.call('HLEN', TRIES) > 0 and redis.call('HMGET', TRIES, unpack(ids))
local done = redis.call('ZCARD', DONE) > 0 and redis.call('ZMSCORE', DONE, unpack(ids))

local z, h, kept, duplicates, n, first, dues = {}, {}, {}, {}, 0, nil, {}
for i = 1, count do
  local was = stored[i]
  if was or (done and done[i] and tonumber(done[i]) > now) then
    if not (again and was == ARGV[3 * i + 3]) then duplicates[#duplicates + 1] = i end
  else
    local text = ARGV[3 * i + 2]
    local due = dues[text]
    if not due then
      due = tonumber(text)
      if string.byte(text) == 43 then due = due + now end
      dues[text] = due
      dues[due] = string.format('%.0f', due)
    end
    if not first or due < first then first = due end
    n = n + 2
    z[n - 1] = dues[due] z[n] = ids[i]
    h[n - 1] = ids[i]    h[n] = ARGV[3 * i + 3]
    if tries and tries[i] then
      local epoch, _, _, pins = parse(tries[i])
      kept[#kept + 1] = ids[i]
      kept[#kept + 1] = record(epoch, 0, '0', pins, '')
    end
  end
end
if n == 0 then return duplicates end

wake(head, first)
redis.call('HSET', MSG, unpack(h))
redis.call('ZADD', DUE, unpack(z))
if #kept > 0 then redis.call('HSET', TRIES, unpack(kept)) end
if not meta[1] then
  redis.call('HSET', META, 'format', "1", 'longest', ARGV[3])
elseif tonumber(ARGV[3]) > tonumber(meta[2] or 0) then
  redis.call('HSET', META, 'longest', ARGV[3])
end
return duplicates
