#!lua flags=no-writes
--- Counts a queue's messages.
-- Reply  {now in us, exists, paused, messages in DUE that are due and that are not, number of packed messages, live,
--        dead, earliest time in DUE or -1, maximum age and number of dead messages and how many were dropped, each as
--        text or "", the counts of due packed messages that were read, and {start, text} of each
--        bucket that may have the earliest message}; NEWER
--@flow
--        Then {concurrency, starts in a period, the period in us, burst, each 0 for none, number of leased messages
--        that count, time of the next allowed start in us; 1 if keys take turns; the limits of each key: concurrency,
--        starts in a period, the period in us, burst, weight; how many keys wait, for a slot or their holder, and for
--        their rate; the order of each key or "", how many keys are halted, 1 if messages have an urgency}; no limits
--        if the last ones are being removed
--@end
--@include keys
--@include format
--@include clock
--@include read_counts
--@flow
--@include limits
--@include sorted
--@end
local now, now_us = read_clock()
local format, paused, packed, max_age, max_count, dropped = unpack(redis.call('HMGET', META, 'format', 'paused',
  'packed_messages', 'dead_max_age_ms', 'dead_max_count', 'dead_dropped'))
if not reads(format) then return NEWER end
packed = tonumber(packed or '') or 0
--@plain
local ready = redis.call('ZCOUNT', DUE, '-inf', now)
--@end
--@flow
local ready = redis.call('ZCOUNT', DUE, '-inf', now) + redis.call('ZCOUNT', DUE, SORTED, now + SORTED)
--@end
local scheduled = redis.call('ZCARD', DUE) - ready
--@plain
local earliest = tonumber(redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')[2] or '') or -1
--@end
--@flow
local earliest = due_in(redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')[2]) or -1
earliest = math.min(earliest, earliest_sorted() or earliest)
--@end
local due_counts, earliest_buckets = {}, {}
if packed > 0 then
  -- A bucket has at least one message, so one that starts after the end of another does not have the earliest.
  -- Overlapping ones are of different classes.
  local buckets, names = redis.call('ZRANGE', BUCKET_STARTS, 0, BUCKET_CLASSES, 'WITHSCORES'), {}
  local before = earliest < 0 and math.huge or earliest
  for i = 1, #buckets, 2 do
    local start, class = tonumber(buckets[i + 1]), string.byte(buckets[i]) - 97
    if start >= before then break end
    before = math.min(before, start + math.max(1, BUCKET_WIDEST_MS / 4 ^ class))
    names[#names + 1] = buckets[i]
    earliest_buckets[#names] = { start, '' }
  end
  local texts = names[1] and redis.call('HMGET', BUCKETS, unpack(names)) or {}
  for i = 1, #names do earliest_buckets[i][2] = texts[i] or '' end
  if buckets[2] and tonumber(buckets[2]) <= now then
    local counts = new_count_reader()
    counts.read({ now + 1 })
    due_counts = counts.reply
  end
end
--@plain
return { now_us, format and 1 or 0, paused and 1 or 0, ready, scheduled, packed, redis.call('HLEN', MESSAGES),
  redis.call('ZCARD', DEAD), earliest, max_age or '', max_count or '', dropped or '', due_counts, earliest_buckets }
--@end
--@flow
local limits, of_keys = read_limits(now_us), { 0, 0, 0, 0, 0, 0, 0, 0, 0, '', 0, 0 }
if not (limits.concurrency or limits.n or limits.keyed) then limits.leased = 0 end
if limits.keyed then
  local waiting, full, resting = redis.call('ZCARD', TURNS), 0, 0
  if limits.urgent then waiting = waiting + redis.call('ZCARD', TURNS_HIGH) + redis.call('ZCARD', TURNS_LOW) end
  for _, key in ipairs({ RESTS, OLD_RESTS }) do
    waiting = waiting + redis.call('ZCARD', key)
    full = full + redis.call('ZCOUNT', key, FULL, '+inf')
    resting = resting + redis.call('ZCOUNT', key, string.format('(%.3f', now_us / 1000), string.format('(%.0f', FULL))
  end
  local halted = limits.order == 'halt' and redis.call('ZCARD', HALTED) or 0
  of_keys = { 1, 0, 0, 0, 0, 0, waiting, full, resting, limits.order or '', halted, limits.urgent == '1' and 1 or 0 }
  for i = 1, 5 do of_keys[i + 1] = tonumber(limits.each_key[i] or '') or 0 end
end
return { now_us, 1, paused and 1 or 0, ready, scheduled, packed, redis.call('HLEN', MESSAGES),
  redis.call('ZCARD', DEAD), earliest, max_age or '', max_count or '', dropped or '', due_counts, earliest_buckets,
  { limits.concurrency or 0, limits.n or 0, limits.per or 0, limits.burst or 0, limits.leased,
    limits.n and start_us(limits, 1) or 0, unpack(of_keys) } }
--@end
