--@include lanes
--@include key_of
-- The first messages of lanes, as claims read them.

-- unhold_gone ends the hold of a message on its key, because it is gone. The lane of the key is next.
local function unhold_gone(limits, places, turns, k)
  places.unhold(k)
  if limits.forwards and k.free > 0 then k.free = math.huge end
  k.may, k.changed = starts_allowed(k, turns.want), true
end

-- see_holder takes a holder with a score in DUE, or nil, as the message of its key, or finds that it is not ready.
local function see_holder(limits, places, turns, m, score)
  local k = m.key
  if not score then
    unhold_gone(limits, places, turns, k)
  elseif tonumber(score) < SORTED then
    places.hold(k, 'w', m.id)
    k.may, k.changed = 0, true
  else
    m.due = due_text_in(score)
    m.line.messages[#m.line.messages + 1] = m
  end
end

-- is_elsewhere reports whether a message with a value does not count in the lane in which it was found: it has another
-- key, or is in the lane of its class too.
local function is_elsewhere(limits, m, value)
  local name, class = key_of(value)
  if name ~= m.key.name then return true end
  class = sorted_as(class, limits.urgent)
  if class == m.line.class then return false end
  return redis.call('ZSCORE', LANES, name .. lane_mark(class) .. m.us .. m.id) and true or false
end

-- stop_at_others leaves the entries that the lanes of other classes of the key go before: the key has an order.
local function stop_at_others(l, entries)
  local name = l.key.name
  for class = 1, 3 do
    local first = class ~= l.class and entries[1] and first_entry(name, class)
    local place = first and string.sub(first, #name + 2, #name + 18)
    for i = first and #entries or 0, 1, -1 do
      local own = string.sub(entries[i], #name + 2, #name + 18)
      local id = string.sub(entries[i], #name + 19)
      if own < place or own == place and not_after(id, string.sub(first, #name + 19)) then break end
      entries[i], l.stopped = nil, true
    end
  end
end

-- next_entries returns up to n more entries of a line.
local function next_entries(limits, l, n)
  local from, to = lane_range(l.key.name, l.class)
  if l.last then from = '(' .. l.last end
  local entries = redis.call('ZRANGE', LANES, from, to, 'BYLEX', 'LIMIT', 0, n + 1)
  l.ended = #entries <= n
  entries[n + 1] = nil
  if l.key.ordered and limits.urgent then
    stop_at_others(l, entries)
    l.ended = l.ended or l.stopped
  end
  return entries
end

-- read_entries reads the next missing messages of lines. It returns their ids, and what is known of them.
local function read_entries(limits, turns, lines)
  local ids, read, with_us = {}, {}, limits.order or limits.urgent
  for _, l in ipairs(lines) do
    local k, missing = l.key, l.planned - (#l.messages - l.taken)
    if missing > 0 and k.letter == 'r' then
      ids[#ids + 1], k.looked = k.holder, true
      read[#ids] = { id = k.holder, key = k, line = l, holds = true }
    elseif missing > 0 and k.may > 0 and not l.ended then
      for _, entry in ipairs(next_entries(limits, l, missing)) do
        l.last = entry
        local digits, id = string.sub(entry, #k.name + 2, #k.name + 15), string.sub(entry, #k.name + 19)
        local due = turns.texts[digits]
        if not due then
          due = string.match(digits, '^0*(%d+)$') or '-1' -- of a damaged entry
          turns.texts[digits], turns.scores[due] = due, string.format('%.0f', due + SORTED)
        end
        ids[#ids + 1] = id
        read[#ids] = { id = id, due = due, entry = entry, key = k, line = l, us = with_us and
          string.sub(entry, #k.name + 2, #k.name + 18), pass = 0, at = 0, text = false, gone = false }
      end
    end
  end
  return ids, read
end

-- read_lanes reads the first valid messages of the planned lines, as many as are planned.
local function read_lanes(limits, places, turns, slots)
  local lines, known, stale = {}, {}, turns.stale
  for _, l in ipairs(slots) do
    if not known[l] then
      known[l] = true
      lines[#lines + 1] = l
    end
  end
  repeat
    local ids, read = read_entries(limits, turns, lines)
    local any_stale = false
    for i, score in ipairs(ids[1] and redis.call('ZMSCORE', DUE, unpack(ids)) or {}) do
      local m = read[i]
      if m.holds then
        see_holder(limits, places, turns, m, score)
        any_stale = any_stale or not score
      elseif score ~= turns.scores[m.due] and (not score or tonumber(score) ~= m.due + SORTED) then
        stale[#stale + 1], any_stale = m.entry, true
      elseif m.key.ids and m.key.ids[m.id] then
        m.first = m.key.ids[m.id]
        turns.second[#turns.second + 1] = m
      else
        m.line.messages[#m.line.messages + 1] = m
        if m.key.ids then m.key.ids[m.id] = m end
      end
    end
    if #stale > MAX_STALE then turns.cut = true end
  until not any_stale or turns.cut
  for _, l in ipairs(lines) do
    if l.stopped then turns.cut = true end -- the key takes its next turn in another class
  end
end
