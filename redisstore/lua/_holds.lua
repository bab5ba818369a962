--@include slots
--@include sorted
--@include write
-- Changes of holds other than by claims and settles; see _lanes.lua.

-- holds_of returns by id the keys that messages hold, nil for a message that holds none, and the names of these keys.
local function holds_of(ids)
  local by_id, names, known = {}, {}, {}
  if not ids[1] or redis.call('HLEN', HOLDERS) == 0 then return by_id, names, known end
  for i, name in ipairs(redis.call('HMGET', HOLDERS, unpack(ids))) do
    if name then
      by_id[ids[i]] = name
      if not known[name] then names[#names + 1] = name end
      known[name] = true
    end
  end
  return by_id, names, known
end

-- change_holds changes the holds of keys and puts the keys where they belong. change takes a key and returns the letter
-- that its hold has from then on, nil if the hold ends. left has the names of the keys with messages that have left
-- their lanes; nil for none. It returns whether a key may go that could not before, now or when its rate allows it, and
-- the names of the keys that are halted no more.
local function change_holds(limits, names, change, left)
  local places, resumed, any = new_places(limits), {}, false

  -- wait_again sets in which classes a key waits, after the letter of its hold has changed from a former one, or some
  -- of its messages have left their lanes. It reports whether the key waits.
  local function wait_again(k, former, has_left)
    local class = k.former_letter == 'r' and k.former_class
    local changed = class or former == 'r' or has_left or limits.urgent and k.letter ~= former
    if k.letter == 'r' or k.place and changed then wait_in_lanes(limits, k) end
    if class and not k.passes[class] then join(limits, k, class) end -- the former holder enters its lane
    return next(k.passes) ~= nil
  end

  for _, k in ipairs(read_waiting(limits, names)) do
    local former, letter, waited = k.letter, change(k), k.place and not k.full
    if former == 'd' and letter ~= 'd' then resumed[#resumed + 1] = k.name end
    if k.holder and not letter then
      places.unhold(k)
    elseif letter ~= former then
      places.hold(k, letter, k.holder)
    end
    if wait_again(k, former, left and left[k.name]) then
      places.set(k)
      any = any or not waited and rests_until(k) ~= FULL
    elseif k.place then
      places.leave(k)
    else
      places.keep(k)
    end
  end
  places.write()
  return any, resumed
end

-- wake_for_keys makes sure that a process claims when the next message may start, after keys were freed. It is the last
-- step of a script that has called read_slots.
local function wake_for_keys(now)
  local paused, packed, keyed, urgent = unpack(redis.call('HMGET', META, 'paused', 'packed_messages', 'flow_keyed',
    'flow_urgency'))
  local at = not paused and next_ready(packed, keyed, now, urgent)
  if at then notify(at, now) end
end
