#!lua flags=no-writes
--- Counts a queue's messages.
-- Reply  {now in us, exists, paused, due and ready, scheduled, live, dead, earliest due or -1, 1 if more than
--        BUCKET_PAGE
--        buckets are overdue, whose ready messages are then counted as scheduled}
--@include keys
--@include now
local meta = redis.call('HMGET', META, 'format', 'paused', 'far')
local packed = tonumber(meta[3] or '') or 0
local ready = redis.call('ZCOUNT', DUE, '-inf', now)
local scheduled = redis.call('ZCARD', DUE) - ready + packed
local earliest = tonumber(redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')[2] or '') or math.huge
local uncounted = 0
if packed > 0 then
  --@include buckets
  -- A bucket that starts before the earliest so far overlaps that one, so it is of a further class.
  --
  for _, name in ipairs(redis.call('ZRANGE', FARS, 0, BUCKET_CLASSES)) do
    if (bucket_range(name) or 0) >= earliest then break end
    for due in each_line(bucket(name)) do earliest = math.min(earliest, due) end
  end
  local late = redis.call('ZCOUNT', FARS, '-inf', now)
  if late > BUCKET_PAGE then
    uncounted = 1
  elseif late > 0 then
    local past, names = 0, redis.call('ZRANGE', FARS, 0, late - 1)
    load_buckets(names)
    for _, name in ipairs(names) do past = past + count_due(bucket(name), -math.huge, now + 1) end
    ready, scheduled = ready + past, scheduled - past
  end
end
return { clock[1] * 1000000 + clock[2], meta[1] and 1 or 0, meta[2] and 1 or 0, ready, math.max(scheduled, 0),
  redis.call('HLEN', MSG), redis.call('ZCARD', DEAD), earliest == math.huge and -1 or earliest, uncounted }
