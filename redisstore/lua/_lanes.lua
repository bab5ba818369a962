-- Messages of a queue with turns, which has flow_keyed in META, wait by key. Its state is in nine keys, which are empty
-- in every other queue:
--   LANES       sorted set, all scores 0: the key, "\0", the place of each sorted message in us in 17 digits, and its
--               id. The place is the due time, unless the key is ordered and the message was sent without a delay; see
--               flow_arrival_us. An entry is valid if the score of its id in DUE is the ms of its place + SORTED, and
--               the message has that key. Others are dropped when they are first in their lane: a script that takes a
--               message out of DUE, or sets its due time there, need not know that it was sorted. If an id has two
--               valid entries, as one that was removed and sent again within a ms may, the first counts.
--   KEY_STATES  hash: "leased\tus\trem\tn\tpass\tholder" by key: the messages that take its slots; the time of the next
--               start under its rate in us and in n-th parts of a us; its pass while it is in RESTS or OLD_RESTS; and a
--               letter and the id of the message that holds it and is not leased, "" for none. A key without a state
--               has "0\t0\t0\t0\t0\t". The letter is w of a holder that waits and is not sorted; r of one that is
--               ready: sorted, but in no lane, because it is the only one of its key that may start; d of a dead one.
--   TURNS       sorted set: the keys that wait and may go, by pass
--   RESTS       sorted set: the keys that wait and may not go, by the time in ms of the next start that their rate
--               allows, with a fraction; FULL if they wait for a slot, or for their holder
--   OLD_RESTS   RESTS from before the limits were changed. Claims and changes place its keys again.
--   FORGET      sorted set: keys that do not wait and have started ahead of their rate, by the time in ms to look
--               whether the state is still needed
--   KEY_FLOWS   hash: the limits of a key that differ, "concurrency\tn\tper_us\tburst\tweight": a field is empty if it
--               is inherited, and "0" for no limit. n, per_us and burst are inherited together.
--   HOLDERS     hash: the keys by the ids of their holders
--   HALTED      sorted set: the keys of dead holders, by the time in ms of the halt
-- Every key that waits is in TURNS, RESTS or OLD_RESTS, and in one of them. A key waits if it has an entry in LANES, or
-- a holder that is ready. A holder that is no longer sorted, because its due time was set, is found when its key has a
-- turn.
--
-- META has the limits of each key, none if there is none:
--   flow_keyed            when the queue got turns, in us, and the number of the request, as flow_since
--   flow_key_concurrency, flow_key_n, flow_key_per_us, flow_key_burst, flow_key_weight
--   flow_key_order        "continue" or "halt". Without it the holders in states do not count, nor do dead ones without
--                         "halt".
--   flow_arrival_us       the last place of a message that was sent without a delay to a queue with an order, 0 if
--                         messages with places have only been forwarded to it
--   flow_fence_us         the last fence of such a queue
--   flow_pass             the clock: the pass of the last start. A key that begins to wait joins the turns JOIN/weight
--                         later: just before the keys that have started at the clock. At the clock itself, new keys
--                         that arrive as fast as messages start would let no other key start.
--   flow_claimed_us       the time of a claim, at most CLAIM_TIME_US before the last one: ahead if the clock was set
--                         back
--   flow_unsorting        "1" while sorted messages are left in a queue that has no turns any more
--   flow_unholding        "1" while holders are left that do not count any more
--@include limits
--@include write

-- read_sets reads the keys that are written while keys take turns, before the first write of a script.
local function read_sets()
  for _, key in ipairs({ LANES, TURNS, RESTS, OLD_RESTS, FORGET, HALTED }) do redis.call('ZCARD', key) end
  for _, key in ipairs({ KEY_STATES, KEY_FLOWS, HOLDERS }) do redis.call('HLEN', key) end
end

-- lane_entry returns the entry of a message in the lane of a key, given its place.
local function lane_entry(name, us, id)
  return name .. '\0' .. string.format('%017.0f', us) .. id
end

-- find_entries returns a function that returns the entry of a sorted message in the lane of a key, given its due time.
-- It may return nil in a queue with an order. There at most about a thousand messages of a ms have another place.
local function find_entries(order)
  local read = {} -- entries by id, by key and due time
  return function(name, due, id)
    local usual = lane_entry(name, due * 1000, id)
    if not order or redis.call('ZSCORE', LANES, usual) then return usual end
    local begin = string.sub(usual, 1, #name + 15)
    local entries = read[begin]
    if not entries then
      entries = {}
      for _, entry in ipairs(redis.call('ZRANGE', LANES, '[' .. begin .. '001', '(' .. begin .. ':', 'BYLEX')) do
        entries[string.sub(entry, #begin + 4)] = entry
      end
      read[begin] = entries
    end
    return entries[id]
  end
end

-- set_free sets how many slots of a key are free: none while it is held by a message that is not ready.
local function set_free(k)
  k.free = k.concurrency and math.max(0, k.concurrency - k.leased) or math.huge
  if k.letter and k.letter ~= 'r' then k.free = 0 end
end

-- read_key returns the limits of a key and its state, given its texts in KEY_STATES and KEY_FLOWS, false for none. The
-- holder has a letter and an id, and former is one that does not count any more.
local function read_key(limits, name, state, override)
  local k = { name = name, now_us = limits.now_us, leased = 0, pass = 0, weight = 1, stored = state }
  local us, rem, of = 0, 0, 0
  if state then
    local leased, pass, letter, id
    leased, us, rem, of, pass, letter, id = string.match(state, '^(%d+)\t(%d+)\t(%d+)\t(%d+)\t([^\t]+)\t(%l?)(.*)$')
    k.leased, k.pass = tonumber(leased or '') or 0, tonumber(pass or '') or 0
    us, rem, of = tonumber(us or '') or 0, tonumber(rem or '') or 0, tonumber(of or '') or 0
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
    local own = { string.match(override, '^(%d*)\t(%d*)\t(%d*)\t(%d*)\t(%d*)$') }
    if own[1] ~= '' then concurrency = own[1] end
    if own[2] ~= '' then n, per, burst = own[2], own[3], own[4] end
    if own[5] ~= '' then weight = own[5] end
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

-- read_keys returns the keys with some names.
local function read_keys(limits, names)
  local keys = {}
  if not names[1] then return keys end
  if limits.overridden == nil then limits.overridden = redis.call('HLEN', KEY_FLOWS) > 0 end
  local states = redis.call('HMGET', KEY_STATES, unpack(names))
  local overrides = limits.overridden and redis.call('HMGET', KEY_FLOWS, unpack(names)) or {}
  for i, name in ipairs(names) do keys[i] = read_key(limits, name, states[i], overrides[i]) end
  return keys
end

-- rests_until returns the time in ms, with a fraction, at which a key may start, FULL if that depends on a slot or its
-- holder, or nil if it may start now.
local function rests_until(k)
  if k.free <= 0 then return FULL end
  local us = k.n and start_us(k, 1) or k.now_us
  return us > k.now_us and us / 1000 or nil
end

-- start_key counts n starts for a key. held is true if the messages take slots.
local function start_key(k, n, held)
  if held then k.leased, k.free = k.leased + n, k.free - n end
  if k.n then k.us, k.rem = after(k, k.us, k.rem, n) end
  for _ = 1, n do k.pass = k.pass + 1 / k.weight end
end

-- new_places returns the changes to the places and states of keys, which a script writes at its end.
local function new_places(limits)
  local turns, rests, forget, states, gone, holders, left
  local places = {}

  -- clear forgets the changes.
  local function clear()
    turns, rests, forget, states, gone = {}, {}, {}, {}, {}
    holders = { held = {}, gone = {}, halted = {}, resumed = {}, sorted = {}, unsorted = {} }
    left = { [TURNS] = {}, [RESTS] = {}, [OLD_RESTS] = {} }
  end
  clear()

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

  -- keep sets the state of a key, or removes it if it does not differ from that of a new key. place is the set that the
  -- key is in, nil for none. The score of a turn is the pass. The state of a key that does not wait is looked at again
  -- when its rate is not ahead any more, unless messages take its slots, or one holds it.
  local function keep(k, place)
    if k.former then
      holders.gone[#holders.gone + 1] = k.former
      if k.former_letter == 'd' then holders.resumed[#holders.resumed + 1] = k.name end
      local score = k.former_letter == 'r' and tonumber(redis.call('ZSCORE', DUE, k.former) or '')
      if score and score >= SORTED and place then -- it is in no lane
        holders.sorted[#holders.sorted + 1] = '0'
        holders.sorted[#holders.sorted + 1] = lane_entry(k.name, 1000 * (score - SORTED), k.former)
      elseif score and score >= SORTED then -- claims sort it again
        holders.unsorted[#holders.unsorted + 1] = string.format('%.0f', score - SORTED)
        holders.unsorted[#holders.unsorted + 1] = k.former
      end
      k.former, k.former_letter = nil, nil
    end
    local rests, ahead = place and place ~= TURNS, k.n and k.us > k.now_us
    if not rests and not ahead and k.leased == 0 and not k.holder then
      if k.stored then gone[#gone + 1] = k.name end
      return
    end
    states[#states + 1] = k.name
    states[#states + 1] = string.format('%.0f\t%.0f\t%.0f\t%.0f\t%.17g\t%s', k.leased, k.n and k.us or 0,
      k.n and k.rem or 0, k.n or 0, rests and k.pass or 0, k.holder and k.letter .. k.holder or '')
    if not place and k.leased == 0 and not k.holder then
      forget[#forget + 1] = math.ceil(k.us / 1000)
      forget[#forget + 1] = k.name
    end
  end

  -- set puts a key that waits where it belongs, and keeps its state. place is the set that it is in, nil for none. It
  -- returns the new one.
  function places.set(k, place)
    local to, rests_at = TURNS, rests_until(k)
    if rests_at then
      to = RESTS
      rests[#rests + 1] = string.format('%.3f', rests_at)
      rests[#rests + 1] = k.name
    else
      k.pass = math.max(k.pass, limits.pass)
      turns[#turns + 1] = string.format('%.17g', k.pass)
      turns[#turns + 1] = k.name
    end
    if place and place ~= to then table.insert(left[place], k.name) end
    keep(k, to)
    return to
  end

  -- leave takes a key out of the set that it is in, because it does not wait any more.
  function places.leave(k, place)
    if k.former_letter == 'r' then return places.set(k, place) end -- its former holder enters its lane
    table.insert(left[place], k.name)
    keep(k)
  end

  places.keep, places.hold, places.unhold = keep, hold, unhold

  -- write writes all.
  function places.write()
    for set, names in pairs(left) do write('ZREM', set, names) end
    write('ZADD', TURNS, turns)
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

-- places_of returns the sets that keys are in, by name, nil for none, and their scores there.
local function places_of(names)
  local places, scores, unknown = {}, {}, names
  if not names[1] then return places, scores end
  for _, key in ipairs({ TURNS, RESTS, OLD_RESTS }) do
    if unknown[1] and redis.call('ZCARD', key) > 0 then
      local missing = {}
      for i, score in ipairs(redis.call('ZMSCORE', key, unpack(unknown))) do
        local name = unknown[i]
        if score then places[name], scores[name] = key, tonumber(score) else missing[#missing + 1] = name end
      end
      unknown = missing
    end
  end
  return places, scores
end

-- free_keys gives slots of keys back, given the number for each key. holds has what hold takes of the message that
-- holds a key from now on, unless another one does. free_keys returns true if a key that was full waits for no
-- slot any more: it may go, now or when its rate allows it.
local function free_keys(limits, freed, holds)
  local names = {}
  for name in pairs(freed) do names[#names + 1] = name end
  local changes, any, places, scores = new_places(limits), false, places_of(names)
  for _, k in ipairs(read_keys(limits, names)) do
    local n, place, held = freed[k.name], places[k.name], holds and holds[k.name]
    k.leased = math.max(0, k.leased - n)
    set_free(k)
    if held and limits.order and not k.holder and k.name ~= '' then changes.hold(k, unpack(held)) end
    if place == RESTS and scores[k.name] == FULL then
      changes.set(k, RESTS)
      any = any or k.free > 0
    else
      changes.keep(k, place)
    end
  end
  changes.write()
  return any
end
