#!lua flags=allow-oom
--- Checks one page of one of a queue's keys against the others, and mends what it finds when asked to.
-- ARGV   1 key: "meta", "tries", "due", "dead", "far", "fars", "total", "expiry", "lease" or "msg"; 2 cursor; 3 "1" to mend
-- Reply  {next cursor, what was found: name and id, by turns, ids that are neither due nor far nor dead}; BUSY when there are
--        more than FAR_COUNTED buckets, too many to count what is in them in one call; NEWER
-- Safe   every key was read before the first write. What is found is true in the moment of the script, and mended in
--        the same one. A page is what one step of HSCAN or ZSCAN gives, of messages about MAX_BYTES.
--@include keys
local meta = redis.call('HMGET', META, 'format', 'longest', 'unusual', 'far')
local far = tonumber(meta[4] or '') or 0
--@include format
--@include now
--@include record
--@include write
--@include lease
--@include wake
--@include far

-- bare is the envelope in a value of MSG. A message that was ever far has byte 128 and its due time then, in six bytes,
-- before it; see _far.lua.
local function bare(value)
  if value and #value >= 7 and string.byte(value) == 128 then return string.sub(value, 8) end
  return value
end

local living = redis.call('HLEN', MSG)
redis.call('HLEN', FAR)
redis.call('ZCARD', FARS)
local held_leases = redis.call('HLEN', LEASE)
redis.call('ZCARD', EXPIRY)
redis.call('ZCARD', DEAD)
redis.call('HLEN', TRIES)
redis.call('ZCARD', WAKE)
local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
local mend = ARGV[3] == '1'
local next_cursor, found, stateless = '0', {}, {}

local function note(what, id)
  found[#found + 1] = what
  found[#found + 1] = id
end

-- readable tells whether the scripts can read a record, of a dead message or of any.
local function readable(text, dead)
  local _, _, _, _, rest = parse(text)
  return rest and (not dead or string.find(rest, '^%d+\t[%l_]+\t') ~= nil)
end

local function meta_page()
  if meta[1] or living + held_leases == 0 and not head[1] then return end
  note('no format', '')
  -- How long messages are and whether they are unusual is found with them.
  if mend then redis.call('HSET', META, 'format', FORMAT, 'unusual', 1) end
end

local function tries_page(step)
  for i = 1, #step, 2 do
    local id, text = step[i], step[i + 1]
    local here = redis.call('HEXISTS', MSG, id) == 1
    if not readable(text) then
      note('record unreadable', id)
      changed[id] = false
    else
      local epoch, attempts, _, pins = parse(text)
      if here and not attempts then
        note('record of no attempt', id)
        keep(id, record(epoch, 0, '0', pins, ''))
      elseif not here and (pins < 1 or held_leases == 0) then
        note('record without message', id)
        changed[id] = false
      end
    end
  end
  if mend then write_tries() end
end

local function due_page(step)
  local gone, undead = {}, {}
  for i = 1, #step, 2 do
    local id = step[i]
    if redis.call('HEXISTS', MSG, id) == 0 then
      note('due without message', id)
      gone[#gone + 1] = id
    elseif redis.call('ZSCORE', DEAD, id) then
      note('due and dead', id)
      undead[#undead + 1] = id
    end
  end
  if not mend then return end
  write('ZREM', DUE, gone)
  write('ZREM', DEAD, undead)
end

local function dead_page(step)
  local gone = {}
  for i = 1, #step, 2 do
    local id, at = step[i], step[i + 1]
    local text = redis.call('HGET', TRIES, id)
    if redis.call('HEXISTS', MSG, id) == 0 then
      note('dead without message', id)
      gone[#gone + 1] = id
    elseif not text or not readable(text, true) then
      note('dead without reason', id)
      local epoch, attempts, _, pins = parse(text)
      keep(id, record(epoch or 0, attempts or 0, '1', pins or 0, string.format('%.0f', tonumber(at)) .. '\tfailed\t' .. REASON_LOST_TEXT))
    end
  end
  if not mend then return end
  write('ZREM', DEAD, gone)
  write_tries()
end

--@include examine_far

local function expiry_page(step)
  local gone = {}
  for i = 1, #step, 2 do
    if redis.call('HEXISTS', LEASE, step[i]) == 0 then
      note('deadline without lease', step[i])
      gone[#gone + 1] = step[i]
    end
  end
  if mend then write('ZREM', EXPIRY, gone) end
end

local function lease_page(step)
  local ended, kept, deadlines = {}, {}, {}
  for i = 1, #step, 2 do
    local lease, text = step[i], step[i + 1]
    local lines, dues, dropped = {}, {}, 0
    local _, left = string.gsub(text, '\n[^\t\n]', '')
    for id, due, epoch, max in each_held(text) do
      if not tonumber(due) then break end
      left = left - 1
      local recorded = redis.call('HGET', TRIES, id)
      local past = recorded and readable(recorded) and parse(recorded) ~= (tonumber(epoch) or 0)
      local here = redis.call('HEXISTS', MSG, id) == 1
      if not past and not here then
        note('lease of no message', id)
        dropped = dropped + 1
      elseif not past and (redis.call('ZSCORE', DUE, id) or redis.call('ZSCORE', DEAD, id) or far_due(id)) then
        note('leased and elsewhere', id)
        dropped = dropped + 1
      else
        lines[#lines + 1] = held_line(id, epoch, max)
        dues[#dues + 1] = due
      end
    end
    if left > 0 then
      note('lease unreadable', lease)
      ended[#ended + 1] = lease
    elseif #lines == 0 then
      if dropped == 0 then note('lease without messages', lease) end
      ended[#ended + 1] = lease
    else
      if dropped > 0 then
        kept[#kept + 1] = lease
        kept[#kept + 1] = lease_text(lines, dues)
      end
      if not redis.call('ZSCORE', EXPIRY, lease) then
        note('lease without deadline', lease)
        deadlines[#deadlines + 1] = now
        deadlines[#deadlines + 1] = lease
      end
    end
  end
  if not mend then return end
  write('HSET', LEASE, kept)
  write('ZADD', EXPIRY, deadlines)
  write('HDEL', LEASE, ended)
  write('ZREM', EXPIRY, ended)
end

local function msg_page(step)
  local longest, unusual = tonumber(meta[2] or 0), meta[3]
  for i = 1, #step, 2 do
    local id, envelope = step[i], step[i + 1]
    local flags = string.byte(bare(envelope)) or 128
    if #envelope > longest then
      note('longer than noted', id)
      longest = #envelope
    end
    if not unusual and flags < 128 and flags % 8 ~= 0 then -- what is unreadable is set aside by who claims it
      note('more unusual than noted', id)
      unusual = 1
    end
    if not redis.call('ZSCORE', DUE, id) and not redis.call('ZSCORE', DEAD, id) and not far_due(id, envelope) then stateless[#stateless + 1] = id end
  end
  if not mend or not meta[1] then return end
  if longest > tonumber(meta[2] or 0) then redis.call('HSET', META, 'longest', longest) end
  if unusual and not meta[3] then redis.call('HSET', META, 'unusual', unusual) end
end

local function scan(command, key, count)
  local step = redis.call(command, key, ARGV[2], 'COUNT', count)
  next_cursor = step[1]
  return step[2]
end

local pages = {
  meta = meta_page,
  tries = function() tries_page(scan('HSCAN', TRIES, 200)) end,
  due = function() due_page(scan('ZSCAN', DUE, 200)) end,
  dead = function() dead_page(scan('ZSCAN', DEAD, 200)) end,
  far = function() far_page(scan('HSCAN', FAR, 20)) end,
  fars = function() fars_page(scan('ZSCAN', FARS, 200)) end,
  total = total_page,
  expiry = function() expiry_page(scan('ZSCAN', EXPIRY, 200)) end,
  lease = function() lease_page(scan('HSCAN', LEASE, 2)) end,
  msg = function()
    msg_page(scan('HSCAN', MSG, math.max(1, math.min(200, math.floor(MAX_BYTES / math.max(1, tonumber(meta[2] or 1)))))))
  end,
}
if pages[ARGV[1]]() == BUSY then return BUSY end
return { next_cursor, found, stateless }
