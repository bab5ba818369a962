-- A record of TRIES holds the state of a message that differs from the defaults. Fields are separated by tabs:
--   epoch      incremented when the message is cancelled while leased, so that a message sent later under the same id
--              is not mistaken for it
--   attempts   failed attempts so far; x in a tombstone, which has no live message and only keeps the epoch
--   delivered  1 once the message was delivered to a handler
--   refcount   number of leases that still list the id with a lower epoch; the record is kept until they drop it
--   rest       of a dead message: due, reason code, error text; of a live one: empty, empty, last error text
local function parse(record)
  if not record then return 0, 0, '0', 0, '' end
  local epoch, attempts, delivered, refcount, rest = string.match(record, '^(%d+)\t([%dx]+)\t([01])\t(%d+)\t(.*)$')
  return tonumber(epoch), tonumber(attempts), delivered, tonumber(refcount), rest
end

local function record(epoch, attempts, delivered, refcount, rest)
  return epoch .. '\t' .. attempts .. '\t' .. delivered .. '\t' .. refcount .. '\t' .. rest
end

-- tombstone returns the record of a removed message: nil, or a tombstone while old leases still list its id.
local function tombstone(epoch, refcount)
  if refcount > 0 then return record(epoch, 'x', '0', refcount, '') end
  return nil
end

-- drop_ref returns the record after a lease has dropped an entry with an outdated epoch.
local function drop_ref(recorded)
  local epoch, attempts, delivered, refcount, rest = parse(recorded)
  if attempts then return record(epoch, attempts, delivered, refcount - 1, rest) end
  return tombstone(epoch, refcount - 1)
end
