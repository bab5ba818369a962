-- Buckets that begin soon are emptied: what is in them becomes entries of DUE, FAR_LEAD before it is due at the latest. Where
-- buckets are late, as many are as it takes to have `want` messages that are earlier than all that stay, so that a claim is in
-- order; else two at most. Of each class one bucket at most reaches beyond the begin of the next, and all others have a message that
-- is earlier, so MAX_BATCH + FAR_CLASSES are always enough. It gives the time at which the next one begins.
local function unfold_soon(bound, name, want)
  local entries, dues, n = {}, {}, 0
  local taken = counter_below(dues)
  while bound and n < MAX_BATCH + FAR_CLASSES and (bound <= now and taken(bound) < want or bound <= now + FAR_LEAD and n < 2) do
    local b = bucket(name)
    for due, id in each_far(b) do
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
  write_far()
  return bound
end
