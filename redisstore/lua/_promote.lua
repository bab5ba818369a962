-- promote_soon empties buckets that start soon into DUE, at least PROMOTE_LEAD_MS before their messages are due. It
-- returns when the next bucket starts. Overdue buckets are emptied until `want` messages precede all that remain
-- packed, so that claims stay in order; otherwise at most two. MAX_BATCH + BUCKET_CLASSES buckets are always enough:
-- at most one bucket of each class reaches beyond the start of the next, and every other has a message that is
-- earlier.
local function promote_soon(bound, name, want)
  local entries, dues, n = {}, {}, 0
  local taken = counter_below(dues)
  while bound and n < MAX_BATCH + BUCKET_CLASSES
    and (bound <= now and taken(bound) < want or bound <= now + PROMOTE_LEAD_MS and n < 2) do
    local b = bucket(name)
    for due, id in each_line(b) do
      dues[#dues + 1] = due
      entries[#entries + 1] = due
      entries[#entries + 1] = id
    end
    replace_lines(b, { '\n' })
    n = n + 1
    local next_one = redis.call('ZRANGE', FARS, n, n, 'WITHSCORES')
    name, bound = next_one[1], tonumber(next_one[2] or '')
  end
  write('ZADD', DUE, entries)
  write_buckets()
  return bound
end
