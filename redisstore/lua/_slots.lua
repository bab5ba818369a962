--@include limits
--@include lanes
--@include waiting
-- A lease counts if it was claimed while the queue had its flow. Then its text begins with a line that other readers
-- take for a due time of no message: a tab, an asterisk, and flow_since of META. So a lease from before the flow, or
-- from before the queue was plain in between, does not count, and which ones do is known without reading the others.

-- Likewise, it counts for keys if it was claimed since they take turns. Then a tab, a number sign and flow_keyed follow
-- in a second line.

-- Where keys have an order, the third line of a lease with a key is a tab, an exclamation mark and the fence.

-- heads_of returns how the text of a lease begins that counts, false in a plain queue; how that of a lease begins that
-- counts for keys, false unless keys take turns; the order of keys, if any; and flow_urgency.
local function heads_of(since, keyed, order, urgent)
  local head = since and '\n\t*' .. since .. '\n'
  return { head, keyed and head and head .. '\t#' .. keyed .. '\n', order, urgent }
end

-- read_heads returns these of the queue in use.
local function read_heads()
  return heads_of(unpack(redis.call('HMGET', META, 'flow_since', 'flow_keyed', 'flow_key_order', 'flow_urgency')))
end

-- counts reports whether a lease counts.
local function counts(text, heads)
  return heads[1] and string.sub(text, 1, #heads[1]) == heads[1]
end

-- counts_keys reports whether a lease counts for keys.
local function counts_keys(text, heads)
  return heads[2] and string.sub(text, 1, #heads[2]) == heads[2]
end

-- head_of returns the first lines of the text of a lease that counts, nil if it does not.
local function head_of(text, heads)
  local head = counts_keys(text, heads) and heads[2] or counts(text, heads) and heads[1]
  return head and head .. (string.match(text, '^\t![^\n]*\n', #head + 1) or '') or nil
end

-- count_keys adds the number of messages of each key in the text of a lease or a part of it. key is that of the lines
-- before the first line with a key.
local function count_keys(text, key, numbers)
  for line in string.gmatch(text, '[^\n]+') do
    if string.byte(line) ~= 9 then
      if key then numbers[key] = (numbers[key] or 0) + 1 end
    elseif string.byte(line, 2) == 64 then
      key = string.sub(line, 3)
    end
  end
end

-- hold_key adds to the holds, as free_keys takes them, that of a message that came back from a lease that counts for
-- its key, nil or false if it does not. The letter is w, or d if it has died now, a time in ms.
local function hold_key(holds, heads, key, letter, id, now)
  if not heads[3] or not key or holds[key] or letter == 'd' and heads[3] ~= 'halt' then return end
  holds[key] = { letter, id, now }
end

-- untouched_due returns the due time of a message that comes back as it was, given the one that it had, and its key as
-- hold_key takes it. One that holds a key with an order is due by now: its key starts whatever the clock says.
local function untouched_due(due, heads, key, now)
  due = tonumber(due)
  return heads[3] and key and key ~= '' and math.min(due, now) or due
end

-- first_ready returns when the first message in DUE is due, or the first bucket starts; nil for none.
local function first_ready(packed)
  local first
  for _, key in ipairs({ DUE, packed and packed ~= '0' and BUCKET_STARTS or nil }) do
    local at = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or '')
    if at and (not first or at < first) then first = at end
  end
  return first
end

-- first_turn returns when the first message may start that has been sorted, as far as its key is concerned, in ms.
local function first_turn(now, urgent)
  if any_turn(urgent) then return now end
  local at = tonumber(redis.call('ZRANGE', RESTS, 0, 0, 'WITHSCORES')[2] or '')
  return at and at < FULL and at or nil
end

-- next_ready returns when the first message may start, as far as its key is concerned, or the first bucket starts; nil
-- for none. urgent is flow_urgency; unsorting is the field of META, nil if it has to be read.
local function next_ready(packed, keyed, now, urgent, unsorting)
  if not keyed and unsorting == nil then unsorting = redis.call('HEXISTS', META, 'flow_unsorting') == 1 end
  if not keyed and unsorting then return now end -- see _flow_change.lua
  local first = first_ready(packed)
  if not keyed then return first end
  if first and first >= SORTED then first = nil end
  local sorted = first_turn(now, urgent)
  return first and sorted and math.min(first, sorted) or first or sorted
end

-- read_slots reads the keys that free_slots uses, before the first write of its script. heads are as read_heads returns
-- them, if they have been read.
local function read_slots(heads)
  redis.call('ZCARD', DUE)
  redis.call('ZCARD', BUCKET_STARTS)
  redis.call('ZCARD', WAKE)
  local keyed, urgent
  if heads then
    keyed, urgent = heads[2], heads[4]
  else
    keyed, urgent = unpack(redis.call('HMGET', META, 'flow_keyed', 'flow_urgency'))
  end
  if keyed then read_sets(urgent) end
end

-- free_slots counts n messages down that have left leases that count, and those of each key that have left leases that
-- count for keys, with the holds as free_keys takes them. If all slots were taken, a process learns when the next
-- message may start: nobody has promised to claim it. It is the last step of a script.
local function free_slots(n, now, of_keys, holds)
  if n == 0 then return end
  local concurrency, leased, paused, packed, keyed, unsorting, urgent = unpack(redis.call('HMGET', META,
    'flow_concurrency', 'flow_leased', 'paused', 'packed_messages', 'flow_keyed', 'flow_unsorting', 'flow_urgency'))
  leased = tonumber(leased or '') or 0
  local left = math.max(0, leased - n)
  redis.call('HSET', META, 'flow_leased', left)
  local any_key = false
  if keyed and of_keys and next(of_keys) then
    local _, now_us = read_clock()
    any_key = free_keys(read_limits(now_us), of_keys, holds)
  end
  concurrency = tonumber(concurrency or '') or math.huge
  if paused or left >= concurrency or leased < concurrency and not any_key then return end
  local at = next_ready(packed, keyed, now, urgent, unsorting)
  if at then notify(at, now) end
end
