-- What falls due soon leaves its bucket and becomes an entry of DUE, FAR_LEAD before it is due at the latest, up to
-- twice that. Where buckets are late, as many are emptied as it takes to have `want` messages that are earlier than all
-- that stay, so that a claim is in order; else two at most.
local function unfold_soon(bound, name, want)
  local due, taken, n = {}, 0, 0
  while bound and n < MAX_BATCH and (bound <= now and taken < want or bound <= now + FAR_LEAD and n < 2) do
    local b = bucket(name)
    local left, least = { '\n' }, nil
    for at, id in each_far(b) do
      if at <= now + 2 * FAR_LEAD then
        due[#due + 1] = at
        due[#due + 1] = id
        taken = taken + 1
      else
        left[#left + 1] = far_line(b, at, id)
        if not least or at < least then least = at end
      end
    end
    b.text, b.count, b.full, b.bound, b.changed = table.concat(left), #left - 1, false, least, true
    n = n + 1
    bound = least
    if not least then
      local next_one = redis.call('ZRANGE', FARS, n, n, 'WITHSCORES')
      name, bound = next_one[1], tonumber(next_one[2] or '')
    end
  end
  write('ZADD', DUE, due)
  write_far()
  return bound
end
