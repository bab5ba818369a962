--@include holds
-- A change of a queue's limits may concern any number of messages and keys. Then it leaves a mark, and finish_flow.lua
-- does the rest in bounded steps. Claims go on with the first four, in case the process that made the change has died.
--   flow_unsorting of META    the queue has no turns any more, but sorted messages
--   OLD_RESTS                 keys that rested under the former limits
--   flow_unholding of META    the keys have no order any more, but messages that hold them; or are not halted any more,
--                             but HALTED has some
--   flow_reordering of META   keys wait in other classes than they should, because an order began or ended, or urgency
--                             began in a queue with an order
--   flow_end_rates of META    the keys have no rate any more, but times of their next starts, which a later rate must
--                             not obey: the cursor of an HSCAN of KEY_STATES. They matter to no claim; the
--                             next change of the limits goes on.

-- unsort makes up to MAX_UNSORTED sorted messages plain ready ones again, and reports whether more are left. At the end
-- it removes the mark, and makes the format plain if the queue has no limits left.
local function unsort()
  local entries = redis.call('ZRANGE', DUE, SORTED, '+inf', 'BYSCORE', 'LIMIT', 0, MAX_UNSORTED, 'WITHSCORES')
  local z = {}
  for i = 1, #entries, 2 do
    z[i] = due_text_in(entries[i + 1])
    z[i + 1] = entries[i]
  end
  write('ZADD', DUE, z)
  if #entries == 2 * MAX_UNSORTED then return true end
  redis.call('HDEL', META, 'flow_unsorting')
  local concurrency, n, keyed = unpack(redis.call('HMGET', META, 'flow_concurrency', 'flow_n', 'flow_keyed'))
  if not (concurrency or n or keyed) then
    redis.call('HSET', META, 'format', PLAIN_FORMAT)
    redis.call('HDEL', META, 'flow_since', 'flow_leased')
  end
  return false
end

-- unhold ends up to MAX_UNHELD holds that do not count any more, and reports whether more are left.
local function unhold(limits)
  local halted = limits.order == 'continue' and redis.call('ZRANGE', HALTED, 0, MAX_UNHELD - 1) or {}
  local held = limits.order and {} or redis.call('HRANDFIELD', HOLDERS, MAX_UNHELD, 'WITHVALUES')
  local names, ids = { unpack(halted) }, {}
  for i = 1, #held, 2 do ids[#ids + 1], names[#names + 1] = held[i], held[i + 1] end
  if names[1] then
    change_holds(limits, names, function(k) return k.letter end)
    write('HDEL', HOLDERS, ids) -- also ones that no state has
    write('ZREM', HALTED, halted)
  end
  if #names == MAX_UNHELD then return true end
  redis.call('HDEL', META, 'flow_unholding')
  return false
end

-- drop_stale drops the first entries of the lanes of a key that are not valid, about as many as most: a purge without
-- an order leaves them, and they must not decide in which class the key waits. drop_stale returns how many it dropped.
local function drop_stale(name, most)
  local dropped = 0
  for class = 1, 3 do
    local from, to = lane_range(name, class)
    local n, done = 1, false
    while not done and dropped < most do
      local entries, ids, stale = redis.call('ZRANGE', LANES, from, to, 'BYLEX', 'LIMIT', 0, n), {}, {}
      for i, entry in ipairs(entries) do ids[i] = string.sub(entry, #name + 19) end
      for i, score in ipairs(ids[1] and redis.call('ZMSCORE', DUE, unpack(ids)) or {}) do
        local ms = tonumber(string.sub(entries[i], #name + 2, #name + 15))
        if score and ms and tonumber(score) == ms + SORTED then break end
        stale[i] = entries[i]
      end
      write('ZREM', LANES, stale)
      dropped, done, n = dropped + #stale, #stale < n, math.min(100, most)
    end
  end
  return dropped
end

-- reorder lets up to MAX_PLACED keys wait in the classes in which they have to, and reports whether more are left.
local function reorder(limits)
  local names, at, entry, stale = {}, limits.reordering, nil, 0
  for _ = 1, MAX_PLACED do
    entry = redis.call('ZRANGE', LANES, at, '+', 'BYLEX', 'LIMIT', 0, 1)[1]
    if not entry or stale >= MAX_STALE then break end
    local behind, name = next_lanes(entry)
    if name and limits.order then stale = stale + drop_stale(name, MAX_STALE - stale) end
    if stale < MAX_STALE then at, names[#names + 1] = behind, name end -- or the next step goes on with the key
  end
  local places = new_places(limits)
  for _, k in ipairs(read_waiting(limits, names)) do
    if k.place and wait_in_lanes(limits, k) then places.set(k) end
  end
  places.write()
  limits.reordering = entry and at
  if entry then
    redis.call('HSET', META, 'flow_reordering', at)
  else
    redis.call('HDEL', META, 'flow_reordering')
  end
  return entry ~= nil
end
