--@include lanes
--@include sort
--@include key_of
--@include inspect
--@include read_records
-- The steps of a claim in a queue in which keys take turns; see _lanes.lua.

-- sort_ready moves ready messages into the lanes of their keys.
local function sort_ready(limits, places, ids, dues, values)
  local keys, classes, us = {}, {}, {}
  for i = 1, #ids do
    if values[i] then
      keys[i], classes[i] = key_of(values[i])
    else
      keys[i], classes[i] = false, 1
    end
    us[i] = math.max(dues[i], 0) * 1000 -- a place has digits, no sign
  end
  sort_messages(limits, places, ids, keys, classes, us)
end

-- place_again puts some of the keys of a set where they belong, at most MAX_PLACED.
local function place_again(limits, places, key, names)
  for _, k in ipairs(read_keys(limits, names, key)) do places.set(k) end
end

-- wake_keys gives turns to keys that have rested, and looks at those from before a change of limits.
local function wake_keys(limits, places)
  local now_ms = string.format('%.3f', limits.now_us / 1000)
  place_again(limits, places, RESTS, redis.call('ZRANGE', RESTS, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, MAX_PLACED))
  places.write()
  local old, at = redis.call('ZCARD', OLD_RESTS), limits.claimed_us
  local set_back = at and limits.now_us < at and redis.call('ZCARD', RESTS) > 0 -- the clock: keys may start earlier
  if set_back and old == 0 then
    redis.call('RENAME', RESTS, OLD_RESTS)
    old, set_back, at = 1, false, nil
  end
  if not set_back and not (at and limits.now_us >= at and limits.now_us <= at + CLAIM_TIME_US) then
    redis.call('HSET', META, 'flow_claimed_us', limits.now_us)
  end
  if old > 0 then
    place_again(limits, places, OLD_RESTS, redis.call('ZRANGE', OLD_RESTS, 0, MAX_PLACED - 1))
    places.write()
  end
end

-- forget_keys removes states of keys that do not wait and have started ahead of their rate, when their time has come.
local function forget_keys(limits, places, now)
  local names = redis.call('ZRANGE', FORGET, '-inf', now, 'BYSCORE', 'LIMIT', 0, MAX_FORGOTTEN)
  if not names[1] then return end
  redis.call('ZREM', FORGET, unpack(names))
  local waiting = places_of(names)
  for _, k in ipairs(read_keys(limits, names)) do
    if not waiting[k.name] and k.leased == 0 then places.keep(k) end
  end
  places.write()
end

-- digits_of returns a name as numbers of six bytes, which compare like the bytes.
local function digits_of(k)
  if not k.digits then
    k.digits = {}
    for i = 1, #k.name, 6 do
      local a, b, c, d, e, f = string.byte(k.name, i, i + 5)
      k.digits[#k.digits + 1] = ((((a * 256 + (b or 0)) * 256 + (c or 0)) * 256 + (d or 0)) * 256 + (e or 0)) * 256
        + (f or 0)
    end
  end
  return k.digits
end

-- goes_before reports whether a turn goes before another one: by the pass, then by the bytes of the name.
local function goes_before(pass, k, other_pass, other)
  if pass ~= other_pass then return pass < other_pass end
  if k == other then return false end
  local a, b = digits_of(k), digits_of(other)
  for i = 1, #a do
    if a[i] ~= b[i] then return a[i] < (b[i] or -1) end
  end
  return #a < #b
end

-- sink moves the key at a position of a heap of n keys behind those that go before it.
local function sink(heap, i, n)
  local k = heap[i]
  while 2 * i <= n do
    local child = 2 * i
    if child < n and goes_before(heap[child + 1].next, heap[child + 1], heap[child].next, heap[child]) then
      child = child + 1
    end
    if not goes_before(heap[child].next, heap[child], k.next, k) then break end
    heap[i] = heap[child]
    i = child
  end
  heap[i] = k
end

-- lift moves the key at a position of a heap before those that it goes before.
local function lift(heap, i)
  local k = heap[i]
  while i > 1 do
    local above = math.floor(i / 2)
    if not goes_before(k.next, k, heap[above].next, heap[above]) then break end
    heap[i] = heap[above]
    i = above
  end
  heap[i] = k
end

-- new_turns returns the turns of a claim: at first none. The claim is as find_turns takes it.
local function new_turns(limits, places, claim)
  local turns = { picked = {}, died = {}, expired = {} }
  local visited, seen, at_end, last = {}, 0, false, nil -- keys; last: the last one that was read
  local stale, cut = {}, false
  local want, looks, bound = limits.allowed, limits.asked, claim.bound -- messages that may start; to look at; bytes
  local rounds, lost = 0, false -- lost: some turns of a round were not used
  local texts = {} -- due times by their digits

  -- read_turns reads the next keys.
  local function read_turns(n)
    local read = redis.call('ZRANGE', TURNS, seen, seen + n - 1, 'WITHSCORES')
    local names = {}
    for i = 1, #read, 2 do names[#names + 1] = read[i] end
    at_end = #names < n
    seen = seen + #names
    local keys = read_keys(limits, names, TURNS)
    for i, k in ipairs(keys) do
      k.pass = tonumber(read[2 * i])
      k.passes = { k.pass }
      k.next, k.count, k.last = k.pass, 0, nil
      k.ids = limits.order and {} -- that were read: one may have two entries; see _lanes.lua
      if limits.forwards and k.free > 0 and not k.letter then k.free = math.huge end
      k.may = starts_allowed(k, want)
      visited[#visited + 1], last = k, k
    end
    return keys
  end

  -- unhold ends the hold of a message on its key, because it is gone. The lane of the key is next.
  local function unhold(k)
    places.unhold(k)
    if limits.forwards and k.free > 0 then k.free = math.huge end
    k.may, k.changed = starts_allowed(k, want), true
  end

  -- see_holder takes a holder with a score in DUE, or nil, as the message of its key, or finds that it is not ready.
  local function see_holder(m, score)
    local k = m.key
    if not score then
      unhold(k)
    elseif tonumber(score) < SORTED then
      places.hold(k, 'w', m.id)
      k.may, k.changed = 0, true
    else
      m.due = due_text_in(score)
      k.messages[#k.messages + 1] = m
    end
  end

  -- plan returns the keys that start next, in order, up to n, as if all lanes were long. Keys come from three lists:
  -- the ones that were just read, which are in order; the ones of the usual weight that have started, which stay in
  -- order; and a heap of all others.
  local function plan(n)
    local slots, count = {}, 0
    local heap, fresh, again = {}, {}, {}
    local first_fresh, first_again, last_again = 1, 1, 0
    local usual = tonumber(limits.each_key[5] or '') or 1
    for _, k in ipairs(visited) do
      k.planned = 0
      if k.may > k.count and not k.ended then heap[#heap + 1] = k end
    end
    local size = #heap
    for i = math.floor(size / 2), 1, -1 do sink(heap, i, size) end
    while count < n do
      local k, from = heap[1], heap
      local f, a = fresh[first_fresh], again[first_again]
      if f and (not k or goes_before(f.next, f, k.next, k)) then k, from = f, fresh end
      if a and (not k or goes_before(a.next, a, k.next, k)) then k, from = a, again end
      if not at_end and (not k or goes_before(last.pass, last, k.next, k)) then
        local more = math.min(math.max(n - count, seen), MAX_PLACED - seen)
        if more <= 0 then break end
        fresh, first_fresh = {}, 1
        for _, new in ipairs(read_turns(more)) do
          new.planned = 0
          if new.may > 0 then fresh[#fresh + 1] = new end
        end
      elseif not k then
        break
      else
        count = count + 1
        slots[count] = k
        k.planned = k.planned + 1
        k.next = k.next + 1 / k.weight
        local goes_on = k.count + k.planned < k.may
        if from == fresh then
          first_fresh = first_fresh + 1
        elseif from == again then
          first_again = first_again + 1
        elseif not goes_on or k.weight == usual then
          local bottom = heap[size]
          heap[size] = nil
          size = size - 1
          if size > 0 then
            heap[1] = bottom
            sink(heap, 1, size)
          end
        end
        if goes_on and k.weight == usual then
          last_again = last_again + 1
          again[last_again] = k
        elseif goes_on and from == heap then
          sink(heap, 1, size)
        elseif goes_on then
          size = size + 1
          heap[size] = k
          lift(heap, size)
        end
      end
    end
    return slots
  end

  -- read_lanes reads the first valid messages of the lanes of the planned keys, as many as are planned.
  local function read_lanes(slots)
    local keys, known = {}, {}
    for _, k in ipairs(slots) do
      if not known[k] then
        known[k], k.messages, k.taken = true, {}, 0
        keys[#keys + 1] = k
      end
    end
    repeat
      local ids, read = {}, {}
      for _, k in ipairs(keys) do
        local missing = k.planned - #k.messages
        if missing > 0 and k.letter == 'r' then
          ids[#ids + 1], k.looked = k.holder, true
          read[#ids] = { id = k.holder, key = k, holds = true }
        elseif missing > 0 and k.may > 0 and not k.ended then
          local from, to = lane_range(k.name, 1)
          if k.last then from = '(' .. k.last end
          local entries = redis.call('ZRANGE', LANES, from, to, 'BYLEX', 'LIMIT', 0, missing + 1)
          k.ended = #entries <= missing
          for i = 1, math.min(#entries, missing) do
            k.last = entries[i]
            local digits = string.sub(k.last, #k.name + 2, #k.name + 15)
            texts[digits] = texts[digits] or string.match(digits, '^0*(%d+)$')
            ids[#ids + 1] = string.sub(k.last, #k.name + 19)
            read[#ids] = { id = ids[#ids], due = texts[digits], entry = k.last, key = k,
              us = string.sub(k.last, #k.name + 2, #k.name + 18) }
          end
        end
      end
      local any_stale = false
      for i, score in ipairs(ids[1] and redis.call('ZMSCORE', DUE, unpack(ids)) or {}) do
        local m = read[i]
        if m.holds then
          see_holder(m, score)
          any_stale = any_stale or not score
        elseif m.key.ids and m.key.ids[m.id] then
          stale[#stale + 1] = m.entry
        elseif score and tonumber(score) == tonumber(m.due) + SORTED then
          m.key.messages[#m.key.messages + 1] = m
          if m.key.ids then m.key.ids[m.id] = true end
        else
          stale[#stale + 1], any_stale = m.entry, true
        end
      end
      if #stale > MAX_STALE then cut = true end
    until not any_stale or cut
  end

  -- look reads the values and records of messages and picks them. Messages that die use no turn.
  local function look(found)
    local ids, dues = {}, {}
    for i, m in ipairs(found) do ids[i], dues[i] = m.id, m.due end
    local values, fitting = claim.read_values(ids, claim.max_bytes, bound)
    for i = #ids, fitting + 1, -1 do ids[i], cut = nil, true end
    for _, value in ipairs(values) do bound = bound - #(value or '') end
    local records = read_first_records(ids, values)
    cut = cut or #ids < #found or bound <= 0
    local lines, dead = ids, {}
    if records or claim.inspect then
      lines, dead = inspect_all(ids, claim.inspect and values, records, claim.now, dues)
    end
    local dies = {}
    for _, d in ipairs(dead) do dies[d[1] ] = true end
    for i = 1, #found do
      local m = found[i]
      local k = m.key
      if i > #ids then
        k.ended = false
      elseif dies[i] and m.holds then
        unhold(k)
      elseif dies[i] then
        stale[#stale + 1] = m.entry
      elseif values[i] and not m.holds and key_of(values[i]) ~= k.name then
        stale[#stale + 1] = m.entry
        looks = looks + 1 -- the message is in the lane of its new key too
      else
        m.value, m.record, m.line = values[i], records and records[i], lines[i]
        turns.picked[#turns.picked + 1] = m
        k.count = k.count + 1
      end
    end
    if dead[1] then
      local died, expired = claim.kill(dead, claim.now, ids, nil, nil, records)
      for _, id in ipairs(died) do turns.died[#turns.died + 1] = id end
      for _, id in ipairs(expired) do turns.expired[#turns.expired + 1] = id end
    end
    looks = looks - #found
  end

  -- pass_all sets the pass of each start, and puts the messages in order if they were picked in several rounds.
  local function pass_all()
    for _, k in ipairs(visited) do k.next = k.pass end
    for i, m in ipairs(turns.picked) do
      m.pass, m.at = m.key.next, i
      m.key.next = m.key.next + 1 / m.key.weight
    end
    if rounds > 1 or lost then
      table.sort(turns.picked, function(m, other)
        if m.key == other.key then return m.at < other.at end
        return goes_before(m.pass, m.key, other.pass, other.key)
      end)
    end
  end

  -- pick picks the messages that start.
  function turns.pick()
    while not cut and math.min(want - #turns.picked, looks) > 0 do
      local slots = plan(math.min(want - #turns.picked, looks))
      if #slots == 0 then break end
      rounds = rounds + 1
      read_lanes(slots)
      local found = {}
      for _, k in ipairs(slots) do
        k.taken = k.taken + 1
        found[#found + 1] = k.messages[k.taken]
      end
      local before = #turns.picked
      if found[1] then look(found) end
      lost = lost or #turns.picked < before + #slots
      pass_all()
    end
  end

  -- leave leaves the messages from a position on in their lanes.
  function turns.leave(from)
    for _ = from, #turns.picked do
      local m = table.remove(turns.picked)
      m.key.count, m.key.ended = m.key.count - 1, false
    end
  end

  -- drop takes the message at a position, which died, out of its lane. It uses no turn.
  function turns.drop(i)
    local m = table.remove(turns.picked, i)
    m.key.count = m.key.count - 1
    if m.holds then unhold(m.key) else stale[#stale + 1] = m.entry end
  end

  -- finish charges the keys for the messages that were picked and writes where the keys are now.
  function turns.finish()
    for _, m in ipairs(turns.picked) do stale[#stale + 1] = m.entry end
    write('ZREM', LANES, stale)
    local last = turns.picked[#turns.picked]
    if last then
      limits.clocks[1] = math.max(limits.clocks[1], last.pass)
      redis.call('HSET', META, 'flow_pass', string.format('%.17g', limits.clocks[1]))
    end
    for _, k in ipairs(visited) do
      if k.count > 0 and k.letter then places.unhold(k) end
      if k.count > 0 then start_key(k, k.count, not limits.forwards) end
      if limits.forwards and k.free == math.huge and k.concurrency then k.free = k.concurrency - k.leased end
      if k.looked then
        k.ended = k.letter ~= 'r' and not has_entry(k.name)
      end
      if k.count > 0 or k.may <= 0 or k.ended or k.changed then
        k.passes[1] = k.next
        if k.ended then places.leave(k) else places.set(k) end
      end
    end
    places.write()
  end

  return turns
end

-- find_turns does the steps of a claim before messages start: it sorts ready messages, gives turns to keys that have
-- rested, and picks the messages that start. The claim has the latest due time of messages to sort, how many bytes the
-- values may have, the needs of the queue's messages, and functions of _ready.lua. Where keys have an order, nothing
-- starts while ready messages are not sorted: one of them might be the next of its key.
local function find_turns(limits, claim)
  local places = new_places(limits)
  local range = redis.call('ZRANGE', DUE, '-inf', claim.latest, 'BYSCORE', 'LIMIT', 0, MAX_SORTED, 'WITHSCORES')
  local ids, dues = {}, {}
  for i = 1, #range, 2 do ids[#ids + 1], dues[#ids + 1] = range[i], tonumber(range[i + 1]) end
  local values, n = claim.read_values(ids, claim.max_bytes, MAX_READ)
  for i = #ids, n + 1, -1 do ids[i] = nil end
  wake_keys(limits, places)
  if ids[1] then
    sort_ready(limits, places, ids, dues, values)
    places.write()
  end
  forget_keys(limits, places, claim.now)
  local turns = new_turns(limits, places, claim)
  local unsorted = false
  if limits.order then
    local first = tonumber(redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')[2] or '')
    unsorted = first and first <= claim.now or claim.next_bucket and claim.next_bucket <= claim.now
  end
  if not unsorted then turns.pick() end
  return turns
end

-- see_turns says when a message may start of those that have been sorted.
local function see_turns(limits)
  limits.unsorted = limits.waiting
  limits.waiting = limits.waiting or any_turn(limits.urgent)
  local at = tonumber(redis.call('ZRANGE', RESTS, 0, 0, 'WITHSCORES')[2] or '')
  if at and at < FULL then limits.event = math.min(limits.event or at, at) end
end
