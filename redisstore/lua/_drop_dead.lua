--@include record_changes
--@flow
-- find_unhalting returns the first dead messages that exceed the retention if some messages halt keys: these are not
-- counted and stay. HALTED has the time of death of each, so the counts of both indexes say where the others begin.
local function find_unhalting(max_age, max_count, now)
  local function count_until(at)
    return redis.call('ZCOUNT', DEAD, '-inf', at) - redis.call('ZCOUNT', HALTED, '-inf', at)
  end
  local excess = max_count and redis.call('ZCARD', DEAD) - redis.call('ZCARD', HALTED) - tonumber(max_count) or 0
  if max_age then excess = math.max(excess, count_until(now - tonumber(max_age))) end
  if excess <= 0 then return {} end
  local low, high = 0, redis.call('ZCARD', DEAD) - 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if count_until(redis.call('ZRANGE', DEAD, middle, middle, 'WITHSCORES')[2]) > 0 then
      high = middle
    else
      low = middle + 1
    end
  end
  local found, ids = redis.call('ZRANGE', DEAD, low, low + 2 * MAX_BATCH - 1), {}
  for i, key in ipairs(found[1] and redis.call('HMGET', HOLDERS, unpack(found)) or {}) do
    if not key and #ids < math.min(excess, MAX_DROPPED) then ids[#ids + 1] = found[i] end
  end
  return ids
end

--@end
-- drop_dead removes at most MAX_DROPPED dead messages that exceed the queue's retention, given as it is in META, and
-- returns their ids, the oldest deaths first. Every key that the rest of a claim writes is read before the first write.
local function drop_dead(max_age, max_count, now)
  local ids = {}
  if max_age then
    ids = redis.call('ZRANGE', DEAD, '-inf', now - tonumber(max_age), 'BYSCORE', 'LIMIT', 0, MAX_DROPPED)
  end
  local excess = max_count and math.min(redis.call('ZCARD', DEAD) - tonumber(max_count), MAX_DROPPED) or 0
  if excess > #ids then ids = redis.call('ZRANGE', DEAD, 0, excess - 1) end
--@flow
  if redis.call('ZCARD', HALTED) > 0 then ids = find_unhalting(max_age, max_count, now) end
--@end
  if #ids == 0 then return ids end
  redis.call('HLEN', MESSAGES)
  redis.call('ZCARD', DEDUP)
  redis.call('ZCARD', WAKE)
  local any_grouped = redis.call('ZCARD', GROUPS) > 0
  local changes = new_record_changes()
  for i, record in ipairs(redis.call('HMGET', RECORDS, unpack(ids))) do
    local epoch, _, _, refcount = parse_record(record)
    if record then changes.remove(ids[i], epoch, refcount) end
  end
  redis.call('HDEL', MESSAGES, unpack(ids))
  redis.call('ZREM', DEAD, unpack(ids))
  if any_grouped then redis.call('ZREM', GROUPS, unpack(ids)) end
  changes.write()
  local dropped = tonumber(redis.call('HGET', META, 'dead_dropped') or '') or 0
  redis.call('HSET', META, 'dead_dropped', string.format('%.0f', dropped + #ids))
  return ids
end
