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
