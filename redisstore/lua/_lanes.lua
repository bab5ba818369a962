-- Messages of a queue with turns, which has flow_keyed in META, wait by key. Its state is in eleven keys, which are
-- empty in every other queue:
--   LANES       sorted set, all scores 0: the key, the mark of its class, the place of each sorted message in us in 17
--               digits, and its id. The place is the due time, unless the key is ordered and the message was sent
--               without a delay; see flow_arrival_us. An entry is valid if the score of its id in DUE is the ms of its
--               place + SORTED, and the message has that key. Others are dropped when they are first in their lane: a
--               script that takes a message out of DUE, or sets its due time there, need not know that it was sorted.
--               If an id has two valid entries, as one that was removed and sent again within a ms may, the one in the
--               lane of its class counts, or else the first.
--   KEY_STATES  hash: "leased\tus\trem\tn\tpass\tholder" by key: the messages that take its slots; the time of the next
--               start under its rate in us and in n-th parts of a us; its pass while it is in RESTS or OLD_RESTS, three
--               with ";" between them if it waits in other classes than normal, "" for one in which it does not; and a
--               letter and the id of the message that holds it and is not leased, "" for none. A key without a state
--               has "0\t0\t0\t0\t0\t". The letter is w of a holder that waits and is not sorted; r of one that is
--               ready: sorted, but in no lane, because it is the only one of its key that may start; d of a dead one.
--   TURNS       sorted set: the keys that wait in class normal and may go, by pass
--   TURNS_HIGH, TURNS_LOW   the same of the other classes
--   RESTS       sorted set: the keys that wait and may not go, by the time in ms of the next start that their rate
--               allows, with a fraction; FULL if they wait for a slot, or for their holder, or are expected
--   OLD_RESTS   RESTS from before the limits were changed. Claims and changes place its keys again.
--   FORGET      sorted set: keys that do not wait and have started ahead of their rate, by the time in ms to look
--               whether the state is still needed
--   KEY_FLOWS   hash: the limits of a key that differ, "concurrency\tn\tper_us\tburst\tweight": a field is empty if it
--               is inherited, and "0" for no limit. n, per_us and burst are inherited together. A sixth field, "x",
--               marks a key that is expected from another sub-queue and starts no message until then: it rests at FULL.
--   HOLDERS     hash: the keys by the ids of their holders
--   HALTED      sorted set: the keys of dead holders, by the time in ms of the halt
-- Every key that waits is in RESTS, in OLD_RESTS, or in the turns of each class in which it waits. A key waits if it
-- has an entry in LANES, or a holder that is ready. A holder that is no longer sorted, because its due time was set, is
-- found when its key has a turn.
--
-- The classes are the urgencies that messages had when they were sorted: 1 normal, 2 high, 3 low. Without flow_urgency
-- there is only the first. A key waits in each class in which it has an entry, but a key with an order in one: that of
-- its next message, the ready holder or else the first of its lanes. Each class has turns and a clock of its own; the
-- limits of a key are for all. Which class starts next is in _urgency.lua.
--
-- META has the limits of each key, none if there is none:
--   flow_keyed            when the queue got turns, in us, and the number of the request, as flow_since
--   flow_key_concurrency, flow_key_n, flow_key_per_us, flow_key_burst, flow_key_weight
--   flow_key_order        "continue" or "halt". Without it the holders in states do not count, nor do dead ones without
--                         "halt".
--   flow_arrival_us       the last place of a message that was sent without a delay to a queue with an order, 0 if
--                         messages with places have only been forwarded to it
--   flow_fence_us         the last fence of such a queue
--   flow_urgency          "1" while messages are sorted by urgency; "0" after that, as long as keys take turns, because
--                         sorted messages keep their classes. Without it no script reads the other classes.
--   flow_passed_normal, flow_passed_low   see _urgency.lua
--   flow_pass_high, flow_pass_low         the clocks of these classes
--   flow_pass             the clock of class normal: the pass of the last start. A key that begins to wait joins the
--                         turns JOIN/weight later: just before the keys that have started at the clock. At the clock
--                         itself, new keys that arrive as fast as messages start would let no other key start.
--   flow_claimed_us       the time of a claim, at most CLAIM_TIME_US before the last one: ahead if the clock was set
--                         back
--   flow_unsorting        "1" while sorted messages are left in a queue that has no turns any more
--   flow_unholding        "1" while holders are left that do not count any more
--   flow_reordering       while keys are left that may wait in other classes than they should, because an order began
--                         or ended, or urgency began in a queue with an order: where the lanes of the next key begin,
--                         as ZRANGE takes it
--@include limits
--@include write
--@include lane_entries

-- read_sets reads the keys that are written while keys take turns, before the first write of a script. urgent is
-- flow_urgency.
local function read_sets(urgent)
  for _, key in ipairs({ LANES, TURNS, RESTS, OLD_RESTS, FORGET, HALTED }) do redis.call('ZCARD', key) end
  for _, key in ipairs({ KEY_STATES, KEY_FLOWS, HOLDERS }) do redis.call('HLEN', key) end
  if urgent then
    for _, key in ipairs({ TURNS_HIGH, TURNS_LOW }) do redis.call('ZCARD', key) end
  end
end

-- turn_sets returns the sets of turns by class.
local function turn_sets()
  return { TURNS, TURNS_HIGH, TURNS_LOW }
end

-- any_turn reports whether a key may go, or may do so under changed limits.
local function any_turn(urgent)
  local n = redis.call('ZCARD', TURNS) + redis.call('ZCARD', OLD_RESTS)
  if n == 0 and urgent then n = redis.call('ZCARD', TURNS_HIGH) + redis.call('ZCARD', TURNS_LOW) end
  return n > 0
end

-- sorted_as returns the class in which a message of a class is sorted now.
local function sorted_as(class, urgent)
  return urgent == '1' and class or 1
end

-- set_free sets how many slots of a key are free: none while it is expected, or held by a message that is not ready.
local function set_free(k)
  k.free = k.concurrency and math.max(0, k.concurrency - k.leased) or math.huge
  if k.expected or k.letter and k.letter ~= 'r' then k.free = 0 end
end

-- read_key returns the limits of a key and its state, given its texts in KEY_STATES and KEY_FLOWS, false for none. The
-- holder has a letter and an id, and former is one that does not count any more. passes has the pass for each class in
-- which the key waits, if it rests.
local function read_key(limits, name, state, override)
  local k = { name = name, now_us = limits.now_us, leased = 0, weight = 1, stored = state, passes = {},
    free = math.huge, ordered = limits.order and name ~= '', place = nil, lines = nil, count = 0, planned = 0,
    started = 0, may = 0 }
  if not (state or override or limits.of_keys) then return k end
  local us, rem, of = 0, 0, 0
  if state then
    local leased, pass, letter, id
    leased, us, rem, of, pass, letter, id = string.match(state, '^(%d+)\t(%d+)\t(%d+)\t(%d+)\t([^\t]+)\t(%l?)(.*)$')
    k.leased = tonumber(leased or '') or 0
    k.passes[1] = tonumber(pass or '')
    us, rem, of = tonumber(us or '') or 0, tonumber(rem or '') or 0, tonumber(of or '') or 0
    if pass and not k.passes[1] then
      for class, part in ipairs({ string.match(pass, '^([^;]*);([^;]*);([^;]*)$') }) do
        k.passes[class] = tonumber(part)
      end
    end
    if letter == '' then letter = nil end
    if letter and (not limits.order or letter == 'd' and limits.order ~= 'halt') then
      k.former, k.former_letter = id, letter
    elseif letter then
      k.letter, k.holder = letter, id
    end
  end
  if name == '' then return set_limits(k) end
  local concurrency, n, per, burst, weight = unpack(limits.each_key)
  if override then
    local own = { string.match(override, '^(%d*)\t(%d*)\t(%d*)\t(%d*)\t(%d*)(.*)$') }
    if own[1] ~= '' then concurrency = own[1] end
    if own[2] ~= '' then n, per, burst = own[2], own[3], own[4] end
    if own[5] ~= '' then weight = own[5] end
    k.expected = own[6] == '\tx'
  end
  if concurrency == '0' then concurrency = nil end
  if limits.order then concurrency = '1' end
  if n == '0' then n = nil end
  k.weight = tonumber(weight or '') or 1
  if n and rem > 0 and of ~= tonumber(n) then us, rem = us + 1, 0 end -- parts of another size
  set_limits(k, concurrency, n, per, burst, us, rem)
  set_free(k)
  return k
end

-- set_former sets former_class of a key that waits, if a ready holder of it does not count any more: its class, in
-- which the key has waited.
local function set_former(k)
  if k.former_letter == 'r' then k.former_class = next(k.passes) or 1 end
end

-- read_keys returns the keys with some names, which are in RESTS or OLD_RESTS if place is one of them. place of a key
-- is the set in which it waits, TURNS for the ones of all classes, nil if it does not wait.
local function read_keys(limits, names, place)
  local keys = {}
  if not names[1] then return keys end
  if limits.overridden == nil then limits.overridden = redis.call('HLEN', KEY_FLOWS) > 0 end
  local states = redis.call('HMGET', KEY_STATES, unpack(names))
  local overrides = limits.overridden and redis.call('HMGET', KEY_FLOWS, unpack(names)) or {}
  for i, name in ipairs(names) do
    keys[i] = read_key(limits, name, states[i], overrides[i])
    keys[i].place = place
    if place then set_former(keys[i]) end
  end
  return keys
end

-- rests_until returns the time in ms, with a fraction, at which a key may start, FULL if that depends on a slot or its
-- holder or the key is expected, or nil if it may start now.
local function rests_until(k)
  if k.free <= 0 then return FULL end
  local us = k.n and start_us(k, 1) or k.now_us
  return us > k.now_us and us / 1000 or nil
end

-- join lets a key wait in a class, as one that begins to wait. clocks of a key has the clocks when it began, if a claim
-- knows them.
local function join(limits, k, class)
  k.passes[class] = (k.clocks or limits.clocks)[class] + JOIN / k.weight
end

-- wait_in_lanes sets the classes of a key after a change of its messages: the key goes on in a class that it had, and
-- joins a new one. ready is the class of its ready holder, nil if that has not changed. A former holder enters its
-- lane. wait_in_lanes reports whether the key waits.
local function wait_in_lanes(limits, k, ready)
  local classes = {}
  if k.letter == 'r' then
    classes[ready or next(k.passes) or 1] = true
  elseif not limits.urgent then
    classes[1] = first_entry(k.name) ~= nil
  elseif k.ordered then
    classes[next_class(k.name) or 0] = true
  else
    for class = 1, 3 do classes[class] = first_entry(k.name, class) ~= nil end
  end
  if k.former_letter == 'r' then classes[k.former_class] = true end
  for class = 1, 3 do
    if not classes[class] then
      k.passes[class] = nil
    elseif not k.passes[class] then
      join(limits, k, class)
    end
  end
  return next(k.passes) ~= nil
end

-- start_key counts n starts for a key. held is true if the messages take slots.
local function start_key(k, n, held)
  if held then k.leased, k.free = k.leased + n, k.free - n end
  if k.n then k.us, k.rem = after(k, k.us, k.rem, n) end
end

-- new_places returns the changes to the places and states of keys, which a script writes at its end.
local function new_places(limits)
  local sets, classes = turn_sets(), limits.urgent and 3 or 1
  local turns, rests, forget, states, gone, holders, left
  local places = {}

  -- clear forgets the changes.
  local function clear()
    turns, rests, forget, states, gone = { {}, {}, {} }, {}, {}, {}, {}
    holders = { held = {}, gone = {}, halted = {}, resumed = {}, sorted = {}, unsorted = {} }
    left = { [RESTS] = {}, [OLD_RESTS] = {} }
    for class = 1, classes do left[sets[class] ] = {} end
  end
  clear()

  -- passes_text returns the passes of a key as its state has them.
  local function passes_text(passes)
    if passes[1] and not (passes[2] or passes[3]) then return string.format('%.17g', passes[1]) end
    local texts = {}
    for class = 1, 3 do texts[class] = passes[class] and string.format('%.17g', passes[class]) or '' end
    return table.concat(texts, ';')
  end

  -- unhold ends the hold of a message on a key. keep, set or leave has to follow, as behind hold.
  local function unhold(k)
    holders.gone[#holders.gone + 1] = k.holder
    if k.letter == 'd' then holders.resumed[#holders.resumed + 1] = k.name end
    k.letter, k.holder = nil, nil
    set_free(k)
  end

  -- hold makes a message the holder of a key, or changes the letter of its holder. now is the time in ms of a death.
  local function hold(k, letter, id, now)
    if k.holder and k.holder ~= id or k.letter == 'd' and letter ~= 'd' then unhold(k) end
    if not k.holder then
      holders.held[#holders.held + 1] = id
      holders.held[#holders.held + 1] = k.name
    end
    if letter == 'd' and k.letter ~= 'd' then
      holders.halted[#holders.halted + 1] = now
      holders.halted[#holders.halted + 1] = k.name
    end
    k.letter, k.holder = letter, id
    set_free(k)
  end

  -- keep sets the state of a key, or removes it if it does not differ from that of a new key. The score of a turn is
  -- the pass. The state of a key that does not wait is looked at again when its rate is not ahead any more, unless
  -- messages take its slots, or one holds it.
  local function keep(k)
    if k.former then
      holders.gone[#holders.gone + 1] = k.former
      if k.former_letter == 'd' then holders.resumed[#holders.resumed + 1] = k.name end
      local score = k.former_letter == 'r' and tonumber(redis.call('ZSCORE', DUE, k.former) or '')
      if score and score >= SORTED and k.place then -- it is in no lane
        holders.sorted[#holders.sorted + 1] = '0'
        holders.sorted[#holders.sorted + 1] = lane_entry(k.name, k.former_class, 1000 * (score - SORTED), k.former)
      elseif score and score >= SORTED then -- claims sort it again
        holders.unsorted[#holders.unsorted + 1] = string.format('%.0f', score - SORTED)
        holders.unsorted[#holders.unsorted + 1] = k.former
      end
      k.former, k.former_letter = nil, nil
    end
    local rests, ahead = k.place and k.place ~= TURNS, k.n and k.us > k.now_us
    if not rests and not ahead and k.leased == 0 and not k.holder then
      if k.stored then gone[#gone + 1] = k.name end
      return
    end
    states[#states + 1] = k.name
    if rests or k.n or k.holder then
      states[#states + 1] = string.format('%.0f\t%.0f\t%.0f\t%.0f\t%s\t%s', k.leased, k.n and k.us or 0,
        k.n and k.rem or 0, k.n or 0, rests and passes_text(k.passes) or '0', k.holder and k.letter .. k.holder or '')
    else
      states[#states + 1] = k.leased .. LEASED_ONLY
    end
    if not k.place and k.leased == 0 and not k.holder then
      forget[#forget + 1], forget[#forget + 2] = math.ceil(k.us / 1000), k.name
    end
  end

  -- move takes a key out of the sets that it is in, except from the set to and the turns of the classes in which it
  -- waits. seats has the classes in which it has turns, nil if that is not known.
  local function move(k, to)
    if k.place == TURNS then
      for class = 1, classes do
        if (to ~= TURNS or not k.passes[class]) and (not k.seats or k.seats[class]) then
          table.insert(left[sets[class] ], k.name)
        end
      end
    elseif k.place and k.place ~= to then
      table.insert(left[k.place], k.name)
    end
    k.place = to
  end

  -- set puts a key that waits where it belongs, and keeps its state. It returns the set.
  function places.set(k)
    if not next(k.passes) and not wait_in_lanes(limits, k) then join(limits, k, 1) end -- its state was lost
    local rests_at = rests_until(k)
    if rests_at then
      rests[#rests + 1], rests[#rests + 2] = string.format('%.3f', rests_at), k.name
    else
      for class = 1, classes do
        local pass, list = k.passes[class], turns[class]
        if pass then
          k.passes[class] = math.max(pass, limits.clocks[class])
          list[#list + 1], list[#list + 2] = string.format('%.17g', k.passes[class]), k.name
        end
      end
    end
    move(k, rests_at and RESTS or TURNS)
    keep(k)
    return k.place
  end

  -- leave takes a key out of the sets that it is in, because it does not wait any more.
  function places.leave(k)
    if k.former_letter == 'r' then -- its former holder enters its lane
      if not k.passes[k.former_class] then join(limits, k, k.former_class) end
      return places.set(k)
    end
    move(k, nil)
    keep(k)
  end

  places.keep, places.hold, places.unhold = keep, hold, unhold

  -- write writes all.
  function places.write()
    for set, names in pairs(left) do write('ZREM', set, names) end
    for class = 1, classes do write('ZADD', sets[class], turns[class]) end
    write('ZADD', RESTS, rests)
    write('HSET', KEY_STATES, states)
    write('HDEL', KEY_STATES, gone)
    write('ZADD', FORGET, forget)
    write('HDEL', HOLDERS, holders.gone)
    write('HSET', HOLDERS, holders.held)
    write('ZREM', HALTED, holders.resumed)
    write('ZADD', HALTED, holders.halted)
    write('ZADD', LANES, holders.sorted)
    write('ZADD', DUE, holders.unsorted)
    clear()
  end

  return places
end

-- places_of returns the sets that keys are in, by name, TURNS for those of all classes, nil for none; their scores in
-- RESTS and OLD_RESTS, and their passes in TURNS by name and class.
local function places_of(names, urgent)
  local places, scores, passes, unknown = {}, {}, {}, names
  if not names[1] then return places, scores, passes end
  for class, key in ipairs(urgent and turn_sets() or { TURNS }) do
    if redis.call('ZCARD', key) > 0 then
      for i, score in ipairs(redis.call('ZMSCORE', key, unpack(names))) do
        local name = names[i]
        if score then
          passes[name] = passes[name] or {}
          places[name], passes[name][class] = TURNS, tonumber(score)
        end
      end
    end
  end
  for _, key in ipairs({ RESTS, OLD_RESTS }) do
    local missing = {}
    for _, name in ipairs(unknown) do
      if not places[name] then missing[#missing + 1] = name end
    end
    unknown = missing
    if unknown[1] and redis.call('ZCARD', key) > 0 then
      for i, score in ipairs(redis.call('ZMSCORE', key, unpack(unknown))) do
        if score then places[unknown[i] ], scores[unknown[i] ] = key, tonumber(score) end
      end
    end
  end
  return places, scores, passes
end

-- read_waiting returns the keys with some names, with the places where they wait, which it reads unless they are given
-- as places_of returns them. full of a key is true if it waits for a slot or its holder; seats has the classes in which
-- it has turns.
local function read_waiting(limits, names, places, scores, passes)
  if not places then places, scores, passes = places_of(names, limits.urgent) end
  local keys = read_keys(limits, names)
  for _, k in ipairs(keys) do
    k.place, k.full = places[k.name], scores[k.name] == FULL
    if k.place == TURNS then
      k.passes, k.seats = passes[k.name], {}
      for class in pairs(k.passes) do k.seats[class] = true end
    elseif not k.place then
      k.passes = {}
    end
    set_former(k)
  end
  return keys
end

-- free_unlimited gives slots of keys back as free_keys does, if keys have no limits and none waits for one: then no key
-- may go that could not before. It returns false, and does nothing, if that is not so.
local function free_unlimited(limits, names, freed)
  if limits.of_keys or redis.call('HLEN', KEY_FLOWS) + redis.call('ZCARD', RESTS) + redis.call('ZCARD', OLD_RESTS) +
    redis.call('HLEN', HOLDERS) > 0 then return false end
  local kept, gone = {}, {}
  for i, state in ipairs(redis.call('HMGET', KEY_STATES, unpack(names))) do
    local leased, rest = string.match(state or '', '^(%d+)(.*)$')
    if state and rest ~= LEASED_ONLY then return false end
    local left = (tonumber(leased or '') or 0) - freed[names[i] ]
    if left > 0 then
      kept[#kept + 1], kept[#kept + 2] = names[i], left .. LEASED_ONLY
    elseif state then
      gone[#gone + 1] = names[i]
    end
  end
  write('HSET', KEY_STATES, kept)
  write('HDEL', KEY_STATES, gone)
  return true
end

-- free_keys gives slots of keys back, given the number for each key. holds has what hold takes of the message that
-- holds a key from now on, unless another one does. free_keys returns true if a key that was full waits for no
-- slot any more: it may go, now or when its rate allows it.
local function free_keys(limits, freed, holds)
  local names = {}
  for name in pairs(freed) do names[#names + 1] = name end
  if free_unlimited(limits, names, freed) then return false end
  local changes, any = new_places(limits), false
  for _, k in ipairs(read_waiting(limits, names)) do
    local held = holds and holds[k.name]
    k.leased = math.max(0, k.leased - freed[k.name])
    set_free(k)
    if held and limits.order and not k.holder and k.name ~= '' then changes.hold(k, unpack(held)) end
    if k.full and k.place == RESTS then
      changes.set(k)
      any = any or k.free > 0
    else
      changes.keep(k)
    end
  end
  changes.write()
  return any
end
