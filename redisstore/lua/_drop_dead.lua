--@include record_changes
-- drop_dead removes at most MAX_DROPPED dead messages that exceed the queue's retention, given as it is in META, and
-- returns their ids, the oldest deaths first. Every key that the rest of a claim writes is read before the first write.
local function drop_dead(max_age, max_count, now)
  local ids = {}
  if max_age then
    ids = redis.call('ZRANGE', DEAD, '-inf', now - tonumber(max_age), 'BYSCORE', 'LIMIT', 0, MAX_DROPPED)
  end
  local excess = max_count and math.min(redis.call('ZCARD', DEAD) - tonumber(max_count), MAX_DROPPED) or 0
  if excess > #ids then ids = redis.call('ZRANGE', DEAD, 0, excess - 1) end
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
