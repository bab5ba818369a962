--@include lease
--@include record
-- inspect_all looks for exceptions among the queue's first messages: an epoch, own attempts, an expiry, or an
-- unreadable envelope. It returns the lines of all messages for the text of a lease, and of messages that die position,
-- due time, reason and error text. values or records may be nil; then none of the messages has its own limits or a
-- record. Most messages have no exception, so it parses only the few with one.
-- known_dues are the due times as texts or numbers, nil to read those of the queue's first messages.
local function inspect_all(ids, values, records, now, known_dues)
  local lines, dead, dues, first_due = { unpack(ids) }, {}, nil, nil

  local function due_of(i)
    if known_dues then return known_dues[i] end
    dues = dues or redis.call('ZRANGE', DUE, 0, #ids - 1, 'WITHSCORES')
    return dues[2 * i]
  end

  -- has_expired reports whether the expiry in a value is over. Most messages are claimed long before, which the due
  -- time of the first one shows, without that of each.
  local function has_expired(i, value, from, after_due)
    local a, b, c, d, e, f = string.byte(value, from, from + 5)
    local expiry = ((a or 0) * 256 + (b or 0)) * 256 + (c or 0)
    expiry = ((expiry * 256 + (d or 0)) * 256 + (e or 0)) * 256 + (f or 0)
    if not after_due then return expiry <= now end
    if known_dues then return expiry + tonumber(known_dues[i]) <= now end
    first_due = first_due or tonumber(redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')[2])
    return expiry + first_due <= now and expiry + tonumber(due_of(i)) <= now
  end

  -- inspect sets the line of a message or adds it to dead. Its flags are at a position of its value.
  local function inspect(i, value, flags, at, record)
    local epoch, _, delivered = parse_record(record)
    local from, max = at + 1, ''
    if flags >= 128 then
      dead[#dead + 1] = { i, due_of(i), 'unreadable', UNREADABLE_TEXT }
      return
    end
    if flags % 2 == 1 then
      local hi, lo = string.byte(value, from, from + 1)
      max = (hi or 0) * 256 + (lo or 0)
      from = from + 2
    end
    if flags % 8 >= 2 and delivered == '0' and has_expired(i, value, from, flags % 4 >= 2) then
      dead[#dead + 1] = { i, due_of(i), 'expired', EXPIRED_TEXT }
    elseif epoch > 0 or max ~= '' then
      lines[i] = entry_line(ids[i], epoch, max)
    end
  end

  for i = 1, #ids do
    local value, flags, at = values and values[i], 0, 1
    if value then
      flags = string.byte(value) or 128
      if flags == 128 and #value >= 7 then -- after the prefix of a packed message
        at = 8
        flags = string.byte(value, at) or 128
      end
    end
    local record = records and records[i]
    if record or flags >= 128 or flags % 8 > 0 then inspect(i, value, flags, at, record) end
  end
  return lines, dead
end
