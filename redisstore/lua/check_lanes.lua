#!lua flags=allow-oom
--- Checks one page of one of the keys that a queue has while keys take turns, and of its sorted messages, and repairs
--- the issues if asked to.
-- ARGV   1 subject: "due", "lanes", "turns", "rests", "key_states", "key_flows"; 2 cursor; 3 "1" to repair
--@flow
--        More subjects: "turns_high", "turns_low", "holders", "halted".
--@end
-- Reply  {next cursor, issues: name and id or key alternating}; NEWER
-- Safe   every key was read before the first write. An issue exists at the moment of the script, which repairs it in
--        the same step. A page is one step of HSCAN or ZSCAN, of about PAGE_BYTES if messages are read.
--@include keys
--@include format
--@flow
--@include clock
--@include buckets
--@include check_page
--@include find_entries
--@include holds
--@include key_of
--@include overrides
--@end
--@plain
if not reads(redis.call('HGET', META, 'format')) then return NEWER end
return { '0', {} }
--@end
--@flow
local format, paused, unsorting, max_envelope_bytes, packed, unholding = unpack(redis.call('HMGET', META, 'format',
  'paused', 'flow_unsorting', 'max_envelope_bytes', 'packed_messages', 'flow_unholding'))
if not reads(format) then return NEWER end
local now, now_us = read_clock()
local repair, page = ARGV[3] == '1', new_check_page(ARGV[2])
local scan, add_issue = page.scan, page.add_issue
local limits = read_limits(now_us)
read_sets(true)
read_slots()

-- waits reports whether a key is in one of the sets of keys that wait.
local function waits(name)
  return places_of({ name }, limits.urgent)[name] ~= nil
end

-- wake lets a process claim, because a repair has changed when a message may start.
local function wake(any)
  if any and not paused then notify(now, now) end
end

-- holder_of returns the letter and the id of the message that holds a key, given the state of the key.
local function holder_of(state)
  return string.match(state or '', '\t(%l)([^\t]*)$')
end

-- is_ready_holder reports whether a message is the ready holder of a key.
local function is_ready_holder(id, key)
  local letter, holder = holder_of(redis.call('HGET', KEY_STATES, key))
  return letter == 'r' and holder == id
end

-- due_page checks that each sorted message is in the lane of its key, or holds it.
local function due_page(step)
  if unsorting then return end
  local due, entry_of = {}, find_entries(true, limits.urgent)
  for i = 1, #step, 2 do
    local id, score = step[i], tonumber(step[i + 1])
    local value = score >= SORTED and redis.call('HGET', MESSAGES, id)
    if value then
      local key, class = key_of(value)
      local entry = entry_of(key, sorted_as(class, limits.urgent), score - SORTED, id)
      if not (entry and redis.call('ZSCORE', LANES, entry)) and not is_ready_holder(id, key) then
        add_issue('sorted without lane', id)
        due[#due + 1], due[#due + 2] = due_text_in(step[i + 1]), id
      end
    end
  end
  if not repair then return end
  write('ZADD', DUE, due)
  wake(due[1])
end

-- give_turns lets keys wait in classes in which they have messages. lacks has a key and a class for each; a key with a
-- ready holder waits in the class of that one.
local function give_turns(lacks)
  local places = new_places(limits)
  for _, lack in ipairs(lacks) do
    local k, class = unpack(lack)
    if k.letter == 'r' then
      local _, urgency = key_of(redis.call('HGET', MESSAGES, k.holder))
      class = sorted_as(urgency, limits.urgent)
    end
    if not k.passes[class] then join(limits, k, class) end
    places.set(k)
  end
  places.write()
  wake(lacks[1])
end

-- lanes_page checks that each key with a sorted message waits, in the class of the message unless the key has an order.
-- Entries of other messages may be left in any number. A key that rests without a state gets its turns when it has
-- rested.
local function lanes_page(step)
  local deleted, names, classes, lacks = {}, {}, {}, {} -- classes: those with a message, by key
  for i = 1, #step, 2 do
    local key, mark, due, id = string.match(step[i], '^(%C*)([%z\1\2])(%d%d%d%d%d%d%d%d%d%d%d%d%d%d)%d%d%d(.+)$')
    local class = key and string.byte(mark) + 1
    if not key or class > 1 and not limits.urgent then
      add_issue('lane unreadable', '')
      deleted[#deleted + 1] = step[i]
    elseif not (classes[key] and classes[key][class]) and tonumber(redis.call('ZSCORE', DUE, id) or '') == due + SORTED
      and key_of(redis.call('HGET', MESSAGES, id)) == key then
      if not classes[key] then names[#names + 1] = key end
      classes[key] = classes[key] or {}
      classes[key][class] = true
    end
  end
  for _, k in ipairs(read_waiting(limits, names)) do
    for class in pairs(classes[k.name]) do
      local in_one = k.ordered or limits.reordering
      if not k.place or not in_one and next(k.passes) and not k.passes[class] then
        add_issue('key without turn', k.name)
        lacks[#lacks + 1] = { k, class }
        if in_one then break end
      end
    end
  end
  if not repair then return end
  write('ZREM', LANES, deleted)
  give_turns(lacks)
end

-- waiting_page checks a set of keys that wait: they are in none of some other sets, and do not wait for a free slot.
local function waiting_page(set, others, step)
  local twice, names = {}, {}
  for i = 1, #step, 2 do
    local name = step[i]
    for _, key in ipairs(others) do
      if redis.call('ZSCORE', key, name) then
        add_issue('key waits twice', name)
        twice[#twice + 1] = { key, name }
      end
    end
    if set == RESTS and tonumber(step[i + 1]) >= FULL then names[#names + 1] = name end
  end
  local stuck = {}
  for _, k in ipairs(read_keys(limits, names, RESTS)) do
    if rests_until(k) ~= FULL then
      add_issue('key waits for a free slot', k.name)
      stuck[#stuck + 1] = k
    end
  end
  if not repair then return end
  for _, one in ipairs(twice) do
    local key, name = unpack(one)
    redis.call('ZREM', key, name)
  end
  local places = new_places(limits)
  for _, k in ipairs(stuck) do places.set(k) end
  places.write()
  wake(stuck[1])
end

-- right_letter returns the letter of a holder, given the one in its state: nil if the message cannot hold a key.
local function right_letter(letter, id)
  local due, exists = redis.call('ZSCORE', DUE, id), redis.call('HEXISTS', MESSAGES, id) == 1
  if exists and redis.call('ZSCORE', DEAD, id) then return letter == 'd' and 'd' or nil end
  if not exists or not due and not open_buckets(packed).find(id) then return nil end
  return letter == 'r' and due and tonumber(due) >= SORTED and 'r' or 'w'
end

-- states_page checks that each state can be read, and is forgotten at some time; that a holder is what it says, and in
-- the indexes of holders and halted keys.
local function states_page(step)
  local deleted, forget, holders, halted, lacks, wrong, letters = {}, {}, {}, {}, {}, {}, {}
  for i = 1, #step, 2 do
    local key, leased = step[i], string.match(step[i + 1], '^(%d+)\t%d+\t%d+\t%d+\t[%d.e+;-]+\t')
    local letter, id = holder_of(step[i + 1])
    if not leased then
      add_issue('state of key unreadable', key)
      deleted[#deleted + 1] = key
    elseif letter and not limits.order and not unholding then
      add_issue('hold without order', key)
      holders[#holders + 1], holders[#holders + 2] = id, key
    elseif letter and not unholding then
      local right = right_letter(letter, id)
      if right ~= letter then
        add_issue('wrong holder', key)
        wrong[#wrong + 1], letters[key] = key, right or ''
      elseif redis.call('HGET', HOLDERS, id) ~= key or letter == 'd' and not redis.call('ZSCORE', HALTED, key) then
        add_issue('hold not indexed', key)
        holders[#holders + 1], holders[#holders + 2] = id, key
        if letter == 'd' then halted[#halted + 1], halted[#halted + 2] = redis.call('ZSCORE', DEAD, id), key end
      end
      if right == 'r' and not waits(key) then
        add_issue('key without turn', key)
        lacks[#lacks + 1] = { read_waiting(limits, { key })[1], 1 }
      end
    elseif leased == '0' and not letter and not waits(key) and not redis.call('ZSCORE', FORGET, key) then
      add_issue('state of key kept', key)
      forget[#forget + 1], forget[#forget + 2] = now, key
    end
  end
  if not repair then return end
  write('HDEL', KEY_STATES, deleted)
  write('ZADD', FORGET, forget)
  write('HSET', HOLDERS, holders)
  write('ZADD', HALTED, halted)
  if holders[1] and not limits.order then redis.call('HSET', META, 'flow_unholding', 1) end -- claims do the rest
  if wrong[1] then
    change_holds(limits, wrong, function(k) return letters[k.name] ~= '' and letters[k.name] or nil end)
  end
  wake(wrong[1])
  give_turns(lacks)
end

-- indexed_page checks that each key in the index of holders, or of halted keys, has such a holder.
local function indexed_page(index, step)
  if unholding then return end
  local gone = {}
  for i = 1, #step, 2 do
    local key = index == HOLDERS and step[i + 1] or step[i]
    local letter, id = holder_of(redis.call('HGET', KEY_STATES, key))
    if index == HOLDERS and id ~= step[i] or index == HALTED and letter ~= 'd' then
      add_issue('index of no hold', key)
      gone[#gone + 1] = step[i]
    end
  end
  if repair then write(index == HOLDERS and 'HDEL' or 'ZREM', index, gone) end
end

-- overrides_page checks that the limits of single keys can be read.
local function overrides_page(step)
  local deleted = {}
  for i = 1, #step, 2 do
    local rate = string.match(cut_mark(step[i + 1]) or '\t\t\t\t', '^%d*\t(.*)\t%d*$')
    if not rate or rate ~= '\t\t' and not string.find(rate, '^%d+\t%d+\t%d+$') then
      add_issue('limits of key unreadable', step[i])
      deleted[#deleted + 1] = step[i]
    end
  end
  if repair then write('HDEL', KEY_FLOWS, deleted) end
end

if ARGV[1] == 'due' and not limits.urgent then -- some of the keys are not in use, or all of them
  local unused = { TURNS_HIGH, TURNS_LOW }
  if not limits.keyed then
    unused = { LANES, KEY_STATES, TURNS, RESTS, OLD_RESTS, FORGET, KEY_FLOWS, HOLDERS, HALTED, TURNS_HIGH, TURNS_LOW }
  end
  local left = 0
  for _, key in ipairs(unused) do
    left = left + redis.call('EXISTS', key)
    if repair then redis.call('UNLINK', key) end
  end
  if left > 0 then add_issue('turns in a queue without', '') end
end
if not limits.keyed and ARGV[1] ~= 'due' then return { '0', {} } end
local long = long_values(max_envelope_bytes)
local pages = {
  due = function() due_page(scan('ZSCAN', DUE, long)) end,
  lanes = function() lanes_page(scan('ZSCAN', LANES, long)) end,
  turns = function() waiting_page(TURNS, { RESTS, OLD_RESTS }, scan('ZSCAN', TURNS, 200)) end,
  turns_high = function() waiting_page(TURNS_HIGH, { RESTS, OLD_RESTS }, scan('ZSCAN', TURNS_HIGH, 200)) end,
  turns_low = function() waiting_page(TURNS_LOW, { RESTS, OLD_RESTS }, scan('ZSCAN', TURNS_LOW, 200)) end,
  rests = function() waiting_page(RESTS, { OLD_RESTS }, scan('ZSCAN', RESTS, 200)) end,
  key_states = function() states_page(scan('HSCAN', KEY_STATES, 200)) end,
  key_flows = function() overrides_page(scan('HSCAN', KEY_FLOWS, 200)) end,
  holders = function() indexed_page(HOLDERS, scan('HSCAN', HOLDERS, 200)) end,
  halted = function() indexed_page(HALTED, scan('ZSCAN', HALTED, 200)) end,
}
pages[ARGV[1]]()
return { page.next, page.found }
--@end
