--@include lanes
--@include sort
--@include key_of
--@include inspect
--@include read_records
-- The steps of a claim in a queue in which keys take turns; see _lanes.lua.

-- A script has at most 200 local names, so the functions that no other file uses are in a block.
local find_turns, see_turns
do
--@include turn_list
--@include lane_reader
--@include urgency
--@include direct

-- sort_ready moves ready messages into the lanes of their keys.
local function sort_ready(limits, places, ids, dues, values)
  local keys, classes, us = {}, {}, {}
  for i = 1, #ids do
    if values[i] then
      local class
      keys[i], class = key_of(values[i])
      classes[i] = sorted_as(class, limits.urgent)
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
  local waiting = places_of(names, limits.urgent)
  for _, k in ipairs(read_keys(limits, names)) do
    if not waiting[k.name] and k.leased == 0 then places.keep(k) end
  end
  places.write()
end

-- open_turns returns the turns of a claim, which is as find_turns takes it: at first none.
local function open_turns(limits, claim)
  local turns = { picked = {}, died = {}, expired = {}, lists = {}, visited = {} } -- visited: keys
  turns.direct, turns.in_front = {}, 0 -- lines of keys that do not wait, and the number of their messages in DUE
  turns.want, turns.looks = limits.allowed, limits.asked -- messages that may start; to look at
  if limits.urgent then turns.looks = math.max(limits.asked, MAX_HELD_BACK) end
  turns.bound, turns.texts, turns.scores = claim.bound, {}, {} -- bytes; due times by their digits; scores by due time
  turns.stale, turns.cut = {}, false -- entries; whether nothing more is picked
  turns.second = {} -- further entries of messages; see _lanes.lua
  turns.rounds, turns.lost = 0, false -- lost: some turns of a round were not used
  turns.passed = limits.passed
  local keys = {} -- by name

  -- begin_key takes a key into the claim.
  function turns.begin_key(k)
    keys[k.name], turns.visited[#turns.visited + 1] = k, k
    k.lines = {}
    if limits.forwards and k.free > 0 and not k.letter then k.free = math.huge end
    k.may = starts_allowed(k, turns.want)
    return k
  end

  -- new_line adds a line of a key in a class.
  function turns.new_line(k, class, pass)
    local l = { key = k, class = class, pass = pass, next = pass, count = 0, planned = 0, messages = {}, taken = 0 }
    k.lines[#k.lines + 1] = l
    return l
  end

  -- make_lines returns the lines of keys in a class.
  local function make_lines(class, names, passes)
    local lines, unknown = {}, {}
    for _, name in ipairs(names) do
      if not keys[name] then unknown[#unknown + 1] = name end
    end
    for _, k in ipairs(read_keys(limits, unknown, TURNS)) do
      turns.begin_key(k)
      k.passes = {}
      k.ids = (limits.order or limits.urgent) and {} -- messages that were read, by id: one may have two entries
      if k.former_letter then k.former_class = class end
    end
    for i, name in ipairs(names) do lines[i] = turns.new_line(keys[name], class, passes[i]) end
    return lines
  end

  local usual = tonumber(limits.each_key[5] or '') or 1
  for class, key in ipairs(limits.urgent and turn_sets() or { TURNS }) do
    turns.lists[class] = new_turn_list(key, usual, function(names, passes)
      return make_lines(class, names, passes)
    end)
  end
  return turns
end

-- plan_turns returns the lines that start next, in order, up to n, as if all lanes were long.
local function plan_turns(limits, turns, n)
  local slots, lists, passed = {}, turns.lists, { unpack(turns.passed) }
  for _, list in ipairs(lists) do list.begin() end
  for count = 1, n do
    local left, class, l = n - count + 1, 1, nil
    if not limits.urgent then
      l = lists[1].first(left)
    else
      local high = lists[2].first(left)
      local normal = lists[1].first(high and 1 + math.floor(left / NORMAL_EVERY) or left)
      local low = lists[3].first((high or normal) and 1 + math.floor(left / LOW_EVERY) or left)
      local may = { normal, high, low }
      class = not (lists[1].cut or lists[2].cut or lists[3].cut) and choose_class(passed, may)
      l = class and may[class]
      if l then count_start(passed, may, class) end
    end
    if not l then break end
    lists[class].take(l)
    slots[count] = l
  end
  return slots
end

-- put_back leaves the messages from a position on for the next round, and in dead the ones before it.
local function put_back(found, dead, from)
  for i = from, #found do found[i].line.taken = found[i].line.taken - 1 end
  for k = #dead, 1, -1 do
    if dead[k][1] >= from then table.remove(dead, k) end
  end
end

-- read_found returns the values of messages, and how many fit in the bytes that are left, at least one. It does not
-- read the values of messages in direct lines again.
local function read_found(turns, claim, found)
  local values, ids, at, fitting, bytes = {}, {}, {}, #found, 0
  for i, m in ipairs(found) do
    values[i] = m.value
    if m.value == nil then ids[#ids + 1], at[#at + 1] = m.id, i end
  end
  if ids[1] then
    local read, n = claim.read_values(ids, claim.max_bytes, turns.bound)
    for k = 1, n do values[at[k] ] = read[k] end
    if n < #ids then fitting = at[n + 1] - 1 end
  end
  if #ids == #found then return values, fitting end
  for i = 1, fitting do
    bytes = bytes + #(values[i] or '')
    if bytes > turns.bound and i > 1 then return values, i - 1 end
  end
  return values, fitting
end

-- look reads the values and records of messages and picks them. Messages that die use no turn. With urgency, the next
-- message of another class depends on it, so that one is left for the next round.
local function look(limits, places, turns, claim, found)
  local ids, dues, stale = {}, {}, turns.stale
  for i, m in ipairs(found) do ids[i], dues[i] = m.id, m.due end
  local values, fitting = read_found(turns, claim, found)
  for i = #ids, fitting + 1, -1 do ids[i], values[i], turns.cut = nil, nil, true end
  for _, value in ipairs(values) do turns.bound = turns.bound - #(value or '') end
  local records = read_first_records(ids, values)
  turns.cut = turns.cut or #ids < #found or turns.bound <= 0
  local lines, dead = ids, {}
  if records or claim.inspect then
    lines, dead = inspect_all(ids, claim.inspect and values, records, claim.now, dues)
  end
  local dies, class, seen = {}, nil, #found -- class: that of the last message that was not picked
  for _, d in ipairs(dead) do dies[d[1] ] = true end
  for i = 1, #found do
    local m = found[i]
    local k = m.key
    if i > #ids then
      m.line.ended = false
    elseif limits.urgent and class and class ~= m.line.class then
      put_back(found, dead, i)
      seen = i - 1
      break
    elseif dies[i] and m.holds then
      class = m.line.class
      unhold_gone(limits, places, turns, k)
    elseif dies[i] then
      class, m.gone = m.line.class, true
      if m.line.direct then turns.in_front = turns.in_front - 1 else stale[#stale + 1] = m.entry end
    elseif values[i] and not m.holds and not m.line.direct and is_elsewhere(limits, m, values[i]) then
      class, stale[#stale + 1] = m.line.class, m.entry
      turns.looks = turns.looks + 1 -- the message is in another lane too
    else
      m.value, m.record, m.text = values[i], records and records[i], lines[i]
      turns.picked[#turns.picked + 1] = m
      k.count, m.line.count = k.count + 1, m.line.count + 1
    end
  end
  if dead[1] then
    local died, expired = claim.kill(dead, claim.now, ids, nil, nil, records)
    for _, id in ipairs(died) do turns.died[#turns.died + 1] = id end
    for _, id in ipairs(expired) do turns.expired[#turns.expired + 1] = id end
  end
  turns.looks = turns.looks - seen
end

-- pass_all sets the pass of each start, and puts the messages in order if they were picked in several rounds.
local function pass_all(limits, turns)
  for _, list in ipairs(turns.lists) do
    for _, l in ipairs(list.lines) do l.next = l.pass end
  end
  for i, m in ipairs(turns.picked) do
    m.pass, m.at = m.line.next, i
    m.line.next = m.line.next + 1 / m.key.weight
  end
  if turns.rounds > 1 or turns.lost then
    table.sort(turns.picked, function(m, other)
      if m.line == other.line then return m.at < other.at end
      if m.line.class ~= other.line.class then return m.line.class < other.line.class end
      return goes_before(m.pass, m.line, other.pass, other.line)
    end)
  end
  if limits.urgent then
    merge_classes(limits, turns)
  elseif turns.picked[1] then
    turns.clocks = { math.max(limits.clocks[1], turns.picked[#turns.picked].pass) }
  end
  turns.changed = false
end

-- take_found returns the messages of planned lines. With urgency it stops at a line that has no more: which class goes
-- next depends on it.
local function take_found(limits, slots)
  local found = {}
  for _, l in ipairs(slots) do
    local m = l.messages[l.taken + 1]
    if m then
      l.taken, found[#found + 1] = l.taken + 1, m
    elseif limits.urgent then
      break
    end
  end
  return found
end

-- pick_turns picks the messages that start.
local function pick_turns(limits, places, turns, claim)
  while not turns.cut and math.min(turns.want - #turns.picked, turns.looks) > 0 do
    local slots = plan_turns(limits, turns, math.min(turns.want - #turns.picked, turns.looks))
    if #slots == 0 then break end
    turns.rounds = turns.rounds + 1
    read_lanes(limits, places, turns, slots)
    local found = take_found(limits, slots)
    local before = #turns.picked
    if found[1] then look(limits, places, turns, claim, found) end
    turns.lost = turns.lost or #turns.picked < before + #slots
    pass_all(limits, turns)
    turns.cut = turns.cut or limits.urgent and turns.rounds == MAX_ROUNDS
  end
end

-- charge_clocks records how far the turns have gone.
local function charge_clocks(limits, turns)
  if not turns.picked[1] then return end
  limits.clocks = turns.clocks
  local values = { 'flow_pass', string.format('%.17g', limits.clocks[1]) }
  if limits.urgent then
    for i, field in ipairs({ 'flow_pass_high', 'flow_pass_low' }) do
      values[#values + 1], values[#values + 2] = field, string.format('%.17g', limits.clocks[i + 1])
    end
    for class, field in pairs({ [1] = 'flow_passed_normal', [3] = 'flow_passed_low' }) do
      values[#values + 1], values[#values + 2] = field, turns.passed[class]
    end
  end
  redis.call('HSET', META, unpack(values))
end

-- place_lines puts a key where it belongs after a claim, with the passes of its lines. ended tells that the lane of
-- its only class is empty.
local function place_lines(limits, places, k, ended)
  local asks = limits.urgent and (k.ordered or limits.reordering) -- its lanes say in which classes it waits
  if limits.urgent and not asks then
    k.seats = {}
    for class in pairs(k.passes) do k.seats[class] = true end
  end
  for _, l in ipairs(k.lines) do
    if limits.urgent then ended = not (has_more(l, 0) or asks) end
    if k.seats then k.seats[l.class] = true end
    k.passes[l.class] = (not ended or k.former_letter == 'r') and l.next or nil
  end
  if asks then wait_in_lanes(limits, k) end
  if next(k.passes) then places.set(k) else places.leave(k) end
end

-- read_other_passes reads the passes of keys without an order in the classes in which the claim has not read them.
local function read_other_passes(keys)
  for class, key in ipairs(turn_sets()) do
    local names, unread = {}, {}
    for _, k in ipairs(keys) do
      local read = k.ordered
      for _, l in ipairs(k.lines) do read = read or l.class == class end
      if not read then names[#names + 1], unread[#unread + 1] = k.name, k end
    end
    if names[1] and redis.call('ZCARD', key) > 0 then
      for i, score in ipairs(redis.call('ZMSCORE', key, unpack(names))) do
        if score then unread[i].passes[class] = tonumber(score) end
      end
    end
  end
end

-- end_second drops the further entries of the messages that start. The others stay: the first one may not count.
local function end_second(turns)
  local starts = {}
  for _, m in ipairs(turns.picked) do starts[m] = true end
  for _, m in ipairs(turns.second) do
    if starts[m.first] then
      turns.stale[#turns.stale + 1] = m.entry
    else
      m.line.ended = false
    end
  end
end

-- place_unstarted places the keys of direct lines without a start. It is called before the clocks advance, so that
-- these keys keep their passes.
local function place_unstarted(places, turns)
  for _, l in ipairs(turns.direct) do
    local k = l.key
    if k.count == 0 and k.may > 0 and has_more(l, 0) then places.set(k) end
  end
end

-- finish_turns charges the keys for the messages that were picked and writes where the keys are now.
local function finish_turns(limits, places, turns)
  if turns.changed then pass_all(limits, turns) end
  for _, m in ipairs(turns.picked) do
    m.gone = true
    turns.stale[#turns.stale + 1] = m.entry
  end
  end_second(turns)
  write('ZREM', LANES, turns.stale)
  sort_direct(turns)
  place_unstarted(places, turns)
  charge_clocks(limits, turns)
  local moved = {}
  for _, k in ipairs(turns.visited) do
    if k.count > 0 and k.letter then places.unhold(k) end
    if k.count > 0 then start_key(k, k.count, not limits.forwards) end
    if limits.forwards and k.free == math.huge and k.concurrency then k.free = k.concurrency - k.leased end
    local any_ended = false
    for _, l in ipairs(k.lines) do any_ended = any_ended or not has_more(l, 0) end
    if k.looked and not limits.urgent then any_ended = k.letter ~= 'r' and not first_entry(k.name) end
    if k.count > 0 or k.may <= 0 or any_ended or k.changed or not k.place then
      k.ended, moved[#moved + 1] = any_ended, k
    end
  end
  if limits.urgent and moved[1] then read_other_passes(moved) end
  for _, k in ipairs(moved) do place_lines(limits, places, k, k.ended) end
  places.write()
end

-- new_turns returns the turns of a claim with the functions of its caller.
local function new_turns(limits, places, claim)
  local turns = open_turns(limits, claim)

  -- pick picks the messages that start.
  function turns.pick()
    pick_turns(limits, places, turns, claim)
  end

  -- leave leaves the messages from a position on in their lanes.
  function turns.leave(from)
    for _ = from, #turns.picked do
      local m = table.remove(turns.picked)
      m.key.count, m.line.count, m.line.ended, turns.changed = m.key.count - 1, m.line.count - 1, false, true
    end
  end

  -- drop takes the message at a position, which died, out of its lane. It uses no turn.
  function turns.drop(i)
    local m = table.remove(turns.picked, i)
    m.key.count, m.line.count, turns.changed = m.key.count - 1, m.line.count - 1, true
    if m.holds then
      unhold_gone(limits, places, turns, m.key)
    else
      turns.stale[#turns.stale + 1] = m.entry
    end
  end

  -- finish charges the keys for the messages that start, and puts the keys where they belong.
  function turns.finish()
    finish_turns(limits, places, turns)
  end

  return turns
end

-- find_turns does the steps of a claim before messages start: it sorts ready messages, gives turns to keys that have
-- rested, and picks the messages that start. The claim has the latest due time of messages to sort, how many bytes the
-- values may have, the needs of the queue's messages, and functions of _ready.lua. Where keys have an order, nothing
-- starts while ready messages are not sorted: one of them might be the next of its key.
function find_turns(limits, claim)
  local places = new_places(limits)
  local range = redis.call('ZRANGE', DUE, '-inf', claim.latest, 'BYSCORE', 'LIMIT', 0, MAX_SORTED, 'WITHSCORES')
  local ids, dues = {}, {}
  for i = 1, #range, 2 do ids[#ids + 1], dues[#ids + 1] = range[i], tonumber(range[i + 1]) end
  local values, n = claim.read_values(ids, claim.max_bytes, MAX_READ)
  for i = #ids, n + 1, -1 do ids[i] = nil end
  wake_keys(limits, places)
  local turns = new_turns(limits, places, claim)
  if ids[1] and not (limits.order or limits.urgent or limits.forwards) and #ids <= 2 * turns.want then
    ids, dues, values = add_direct(limits, turns, ids, dues, values)
  end
  if ids[1] then
    sort_ready(limits, places, ids, dues, values)
    places.write()
  end
  forget_keys(limits, places, claim.now)
  local unsorted = false
  if limits.order then
    local first = tonumber(redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')[2] or '')
    unsorted = first and first <= claim.now or claim.next_bucket and claim.next_bucket <= claim.now
  end
  if not unsorted then turns.pick() end
  return turns
end

-- see_turns says when a message may start of those that have been sorted.
function see_turns(limits)
  limits.unsorted = limits.waiting
  limits.waiting = limits.waiting or any_turn(limits.urgent)
  local at = tonumber(redis.call('ZRANGE', RESTS, 0, 0, 'WITHSCORES')[2] or '')
  if at and at < FULL then limits.event = math.min(limits.event or at, at) end
end

end
