--@include sort
--@include key_of
-- Messages with a key that are sent without a delay to a queue with an order are sorted in the send, so that they keep
-- the order of their sends also within a ms, and when the clock is set back; see _lanes.lua.

-- has_no_delay reports whether a due time, as due_at takes it, is at once.
local function has_no_delay(text)
  return string.byte(text) == 43 and tonumber(text) <= 0
end

-- new_arrivals returns the messages that a script sorts in the queue in use, at first none.
local function new_arrivals(now_us)
  local order, last, keyed, urgent = unpack(redis.call('HMGET', META, 'flow_key_order', 'flow_arrival_us',
    'flow_keyed', 'flow_urgency'))
  local arrivals, ids, keys, classes, us = { n = 0, keyed = keyed and true, urgent = urgent }, {}, {}, {}, {}
  last = tonumber(last or '') or 0
  local former = last
  if order then
    read_sets(urgent)
    redis.call('ZCARD', WAKE)
    redis.call('ZCARD', DUE)
  end

  -- add adds a message with a value and a place, nil for one behind all earlier ones. It returns its due time, or nil
  -- if it is not sorted, because the queue has no order or the message no key.
  function arrivals.add(id, value, place)
    if not order then return nil end
    local name, class = key_of(value)
    if name == '' then return nil end
    if not place then
      last = math.max(now_us, last + 1)
      place = last
    end
    arrivals.n = arrivals.n + 1
    ids[arrivals.n], keys[arrivals.n], us[arrivals.n] = id, name, place
    classes[arrivals.n] = sorted_as(class, urgent)
    return math.floor(place / 1000)
  end

  -- write sorts them, and lets a process claim if a key begins to wait.
  function arrivals.write(now)
    if arrivals.n == 0 then return end
    -- The field also tells that messages have places other than their due times; a forward leaves it at 0.
    if last > former or last == 0 then redis.call('HSET', META, 'flow_arrival_us', string.format('%.0f', last)) end
    local limits = read_limits(now_us)
    local places = new_places(limits)
    local at = sort_messages(limits, places, ids, keys, classes, us)
    places.write()
    if at then notify(at, now) end
  end

  return arrivals
end
