--@include buckets
-- promote_soon empties buckets that start soon into DUE, at least PROMOTE_LEAD_MS before their messages are due. It
-- takes the start and the name of the first bucket, nil for none, and returns when the next one starts. Overdue buckets
-- are emptied until `want` messages precede all that remain packed, or MAX_PROMOTED are promoted; otherwise at most
-- two. So that claims stay in order, they leave messages that are due after the start of the next bucket. MAX_BATCH +
-- BUCKET_CLASSES buckets are always enough: at most one bucket of each class reaches beyond the start of the next, and
-- every other has a message that is earlier.
local function promote_soon(buckets, now, start, name, want)
  local entries, dues, n = {}, {}, 0
  local taken = buckets.counter_below(dues)
  while start and n < MAX_BATCH + BUCKET_CLASSES and #dues < MAX_PROMOTED
    and (start <= now and taken(start) < want or start <= now + PROMOTE_LEAD_MS and n < 2) do
    local b = buckets.get(name)
    for due, id in buckets.each_line(b) do
      dues[#dues + 1] = due
      entries[#entries + 1], entries[#entries + 2] = due, id
    end
    buckets.replace_lines(b, { '\n' })
    n = n + 1
    local following = redis.call('ZRANGE', BUCKET_STARTS, n, n, 'WITHSCORES')
    name, start = following[1], tonumber(following[2] or '')
  end
  write('ZADD', DUE, entries)
  buckets.write()
  return start
end
