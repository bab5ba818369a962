-- A record in RECORDS holds the differences of a message from the defaults. Fields are separated by tabs:
--   epoch      incremented when the message is cancelled while leased, so that a message sent later under the same id
--              is not mistaken for it
--   attempts   failed attempts so far; x in a tombstone, which has no live message and only keeps the epoch
--   delivered  1 once the message was delivered to a handler
--   refcount   number of leases that still list the id with a lower epoch; the record is kept until they drop it
--   rest       of a dead message: due, reason code, failures, error text; of a live one that failed: empty, empty,
--              failures, last error text; of a successor, while a lease holds its id with this epoch: due, "follows",
--              empty, empty; else empty. Failures are a text that internal/envelope describes.
local function parse_record(record)
  if not record then return 0, 0, '0', 0, '' end
  local epoch, attempts, delivered, refcount, rest = string.match(record, '^(%d+)\t([%dx]+)\t([01])\t(%d+)\t(.*)$')
  return tonumber(epoch), tonumber(attempts), delivered, tonumber(refcount), rest
end

-- failures_of returns the failures in the rest of a record.
local function failures_of(rest)
  return string.match(rest, '^[^\t]*\t[^\t]*\t([^\t]*)\t') or ''
end

-- add_failure returns the last MAX_FAILURES failures, latest first, given the earlier ones. tail is the text of a
-- failure after the attempt.
local function add_failure(earlier, at, attempt, tail)
  local failures = string.format('%.0f', at) .. '\31' .. attempt .. '\31' .. tail
  if earlier == '' then return failures end
  failures = failures .. '\30' .. earlier
  local past = 0
  for _ = 1, MAX_FAILURES do
    past = string.find(failures, '\30', past + 1, true)
    if not past then return failures end
  end
  return string.sub(failures, 1, past - 1)
end

local function format_record(epoch, attempts, delivered, refcount, rest)
  return epoch .. '\t' .. attempts .. '\t' .. delivered .. '\t' .. refcount .. '\t' .. rest
end
