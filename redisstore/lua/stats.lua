#!lua flags=no-writes
--- Counts a queue's messages.
-- Reply  {now in us, exists, paused, ready, scheduled, live, dead, earliest due or -1, maximum age and number of dead
--        messages and how many were dropped, each as text or ""}
--@include keys
--@include clock
--@include count_before
local now, now_us = read_clock()
local format, paused, packed, max_age, max_count, dropped = unpack(redis.call('HMGET', META, 'format', 'paused',
  'packed_messages', 'dead_max_age_ms', 'dead_max_count', 'dead_dropped'))
local buckets = open_buckets(packed)
local ready = redis.call('ZCOUNT', DUE, '-inf', now)
local scheduled = redis.call('ZCARD', DUE) - ready + buckets.packed
local earliest = tonumber(redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')[2] or '') or math.huge
if buckets.packed > 0 then
  -- A bucket that starts before the earliest so far overlaps that one, so it is of a further class.
  for _, name in ipairs(redis.call('ZRANGE', BUCKET_STARTS, 0, BUCKET_CLASSES)) do
    if (buckets.range(name) or 0) >= earliest then break end
    for due in buckets.each_line(buckets.get(name)) do earliest = math.min(earliest, due) end
  end
  local past = math.max(new_packed_counter(buckets).before(now + 1), 0)
  ready, scheduled = ready + past, scheduled - past
end
return { now_us, format and 1 or 0, paused and 1 or 0, ready, math.max(scheduled, 0), redis.call('HLEN', MESSAGES),
  redis.call('ZCARD', DEAD), earliest == math.huge and -1 or earliest, max_age or '', max_count or '',
  dropped or '' }
