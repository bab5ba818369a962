--@include write
--@include sorted
-- A change of a queue's limits may concern any number of messages and keys. Then it leaves a mark, and finish_flow.lua
-- does the rest in bounded steps. So do claims, in case the process that made the change has died.
--   flow_unsorting of META    the queue has no turns any more, but sorted messages
--   OLD_RESTS                 keys that rested under the former limits
--   flow_end_rates of META    the keys have no rate any more, but times of their next starts, which a later rate must
--                             not obey: the cursor of an HSCAN of KEY_STATES. They matter to no claim.

-- read_flow_change reads the keys that the functions below use.
local function read_flow_change()
  for _, key in ipairs({ DUE, TURNS, RESTS, OLD_RESTS }) do redis.call('ZCARD', key) end
  redis.call('HLEN', KEY_STATES)
  redis.call('HLEN', KEY_FLOWS)
end

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

-- wake_rests lets up to MAX_WOKEN keys go that rested under the former limits, and reports whether more are left. A
-- claim that comes to one that may not go lets it rest again.
local function wake_rests()
  local keys = redis.call('ZRANGE', OLD_RESTS, 0, MAX_WOKEN - 1)
  if not keys[1] then return false end
  local clock, turns = tonumber(redis.call('HGET', META, 'flow_pass') or '') or 0, {}
  for i, state in ipairs(redis.call('HMGET', KEY_STATES, unpack(keys))) do
    turns[2 * i - 1] = math.max(clock, tonumber(state and string.match(state, '([^\t]*)$') or '') or 0)
    turns[2 * i] = keys[i]
  end
  write('ZADD', TURNS, turns)
  write('ZREM', OLD_RESTS, keys)
  return #keys == MAX_WOKEN
end

-- end_rates removes the times of the next starts of some keys, and reports whether more are left. Keys with a rate of
-- their own keep it.
local function end_rates(cursor)
  local step = redis.call('HSCAN', KEY_STATES, cursor, 'COUNT', MAX_WOKEN)
  local states, keys, set = step[2], {}, {}
  for i = 1, #states, 2 do keys[#keys + 1] = states[i] end
  for i, limits in ipairs(keys[1] and redis.call('HMGET', KEY_FLOWS, unpack(keys)) or {}) do
    local leased, us, pass = string.match(states[2 * i], '^(%d+)\t(%d+)\t%d+\t%d+\t([^\t]*)$')
    if leased and us ~= '0' and not string.find(limits or '', '^%d*\t%d') then
      set[#set + 1] = keys[i]
      set[#set + 1] = leased .. '\t0\t0\t0\t' .. pass
    end
  end
  write('HSET', KEY_STATES, set)
  if step[1] ~= '0' then
    redis.call('HSET', META, 'flow_end_rates', step[1])
    return true
  end
  redis.call('HDEL', META, 'flow_end_rates')
  return false
end

-- go_on does a step of an unfinished change, and reports whether more is left.
local function go_on()
  local unsorting, ending = unpack(redis.call('HMGET', META, 'flow_unsorting', 'flow_end_rates'))
  if unsorting then return unsort() end
  local resting = wake_rests()
  return ending and end_rates(ending) or resting
end
