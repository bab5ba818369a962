--@include limits
--@include waiting
-- A lease counts if it was claimed while the queue had its flow. Then its text begins with a line that other readers
-- take for a due time of no message: a tab, an asterisk, and flow_since of META. So a lease from before the flow, or
-- from before the queue was plain in between, does not count, and which ones do is known without reading the others.

-- counted_head returns how the text of a lease begins that counts; false in a plain queue.
local function counted_head(since)
  return since and '\n\t*' .. since .. '\n'
end

-- read_counted_head returns that of the queue in use.
local function read_counted_head()
  return counted_head(redis.call('HGET', META, 'flow_since'))
end

-- counts reports whether a lease counts.
local function counts(text, head)
  return head and string.sub(text, 1, #head) == head
end

-- first_ready returns when the first message that is not leased is due, or the first bucket starts; nil for none.
local function first_ready(packed)
  local first
  for _, key in ipairs({ DUE, packed and packed ~= '0' and BUCKET_STARTS or nil }) do
    local at = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or '')
    if at and (not first or at < first) then first = at end
  end
  return first
end

-- read_slots reads the keys that free_slots uses, before the first write of its script.
local function read_slots()
  redis.call('ZCARD', DUE)
  redis.call('ZCARD', BUCKET_STARTS)
  redis.call('ZCARD', WAKE)
end

-- free_slots counts n messages down that have left leases that count. If all slots were taken, a process learns when
-- the next message may start: nobody has promised to claim it. It is the last step of a script.
local function free_slots(n, now)
  if n == 0 then return end
  local concurrency, leased, paused, packed = unpack(redis.call('HMGET', META, 'flow_concurrency', 'flow_leased',
    'paused', 'packed_messages'))
  leased = tonumber(leased or '') or 0
  local left = math.max(0, leased - n)
  redis.call('HSET', META, 'flow_leased', left)
  concurrency = tonumber(concurrency or '') or math.huge
  if paused or leased < concurrency or left >= concurrency then return end
  local at = first_ready(packed)
  if at then notify(at, now) end
end
