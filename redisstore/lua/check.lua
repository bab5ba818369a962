#!lua flags=allow-oom
--- Checks one page of one of a queue's keys against the others and, if asked to, repairs what it finds.
-- ARGV   1 key: "meta", "tries", "due", "dead", "far", "fars", "total", "expiry", "lease" or "msg"; 2 cursor; 3 "1"
--        to repair
-- Reply  {next cursor, issues: name and id alternating, ids that are neither due nor packed nor dead}; BUSY if there
--        are
--        more than MAX_COUNTED_BUCKETS buckets, too many to count their messages in one call; NEWER
-- Safe   every key was read before the first write. An issue exists at the moment of the script, which repairs it in
--        the
--        same step. A page is one step of HSCAN or ZSCAN, of about MAX_BYTES for messages.
--@include keys
local meta = redis.call('HMGET', META, 'format', 'longest', 'unusual', 'far')
local packed = tonumber(meta[4] or '') or 0
--@include format
--@include now
--@include record
--@include write
--@include lease
--@include notify
--@include buckets

-- strip_prefix returns the envelope in a value of MSG. A message that was ever packed has seven bytes before it: byte
-- 128, then its due time and class at that time in six bytes; see _buckets.lua.
local function strip_prefix(value)
  if value and #value >= 7 and string.byte(value) == 128 then return string.sub(value, 8) end
  return value
end

local live = redis.call('HLEN', MSG)
redis.call('HLEN', FAR)
redis.call('ZCARD', FARS)
local held_leases = redis.call('HLEN', LEASE)
redis.call('ZCARD', EXPIRY)
redis.call('ZCARD', DEAD)
redis.call('HLEN', TRIES)
redis.call('ZCARD', WAKE)
local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
local repair = ARGV[3] == '1'
local next_cursor, found, stateless = '0', {}, {}

local function add_issue(what, id)
  found[#found + 1] = what
  found[#found + 1] = id
end

-- readable reports whether the scripts can parse a record, of a dead message or of any.
local function readable(text, dead)
  local _, _, _, _, rest = parse(text)
  return rest and (not dead or string.find(rest, '^%d+\t[%l_]+\t') ~= nil)
end

local function meta_page()
  if meta[1] or live + held_leases == 0 and not head[1] then return end
  add_issue('no format', '')
  -- msg_page determines how long messages are and whether any is unusual.
  if repair then redis.call('HSET', META, 'format', FORMAT, 'unusual', 1) end
end

local function records_page(step)
  for i = 1, #step, 2 do
    local id, text = step[i], step[i + 1]
    local exists = redis.call('HEXISTS', MSG, id) == 1
    if not readable(text) then
      add_issue('record unreadable', id)
      changed[id] = false
    else
      local epoch, attempts, _, refcount = parse(text)
      if exists and not attempts then
        add_issue('tombstone with message', id)
        set_record(id, record(epoch, 0, '0', refcount, ''))
      elseif not exists and (refcount < 1 or held_leases == 0) then
        add_issue('record without message', id)
        changed[id] = false
      end
    end
  end
  if repair then write_records() end
end

local function due_page(step)
  local deleted, dead_removed = {}, {}
  for i = 1, #step, 2 do
    local id = step[i]
    if redis.call('HEXISTS', MSG, id) == 0 then
      add_issue('due without message', id)
      deleted[#deleted + 1] = id
    elseif redis.call('ZSCORE', DEAD, id) then
      add_issue('due and dead', id)
      dead_removed[#dead_removed + 1] = id
    end
  end
  if not repair then return end
  write('ZREM', DUE, deleted)
  write('ZREM', DEAD, dead_removed)
end

local function dead_page(step)
  local deleted = {}
  for i = 1, #step, 2 do
    local id, at = step[i], step[i + 1]
    local text = redis.call('HGET', TRIES, id)
    if redis.call('HEXISTS', MSG, id) == 0 then
      add_issue('dead without message', id)
      deleted[#deleted + 1] = id
    elseif not text or not readable(text, true) then
      add_issue('dead without reason', id)
      local epoch, attempts, _, refcount = parse(text)
      local rest = string.format('%.0f', tonumber(at)) .. '\tfailed\t' .. REASON_LOST_TEXT
      set_record(id, record(epoch or 0, attempts or 0, '1', refcount or 0, rest))
    end
  end
  if not repair then return end
  write('ZREM', DEAD, deleted)
  write_records()
end

--@include check_buckets

local function expiry_page(step)
  local deleted = {}
  for i = 1, #step, 2 do
    if redis.call('HEXISTS', LEASE, step[i]) == 0 then
      add_issue('deadline without lease', step[i])
      deleted[#deleted + 1] = step[i]
    end
  end
  if repair then write('ZREM', EXPIRY, deleted) end
end

local function lease_page(step)
  local ended, kept, deadlines = {}, {}, {}
  for i = 1, #step, 2 do
    local lease, text = step[i], step[i + 1]
    local lines, dues, dropped = {}, {}, 0
    local _, left = string.gsub(text, '\n[^\t\n]', '')
    for id, due, epoch, max in each_entry(text) do
      if not tonumber(due) then break end
      left = left - 1
      local recorded = redis.call('HGET', TRIES, id)
      local past = recorded and readable(recorded) and parse(recorded) ~= (tonumber(epoch) or 0)
      local exists = redis.call('HEXISTS', MSG, id) == 1
      if not past and not exists then
        add_issue('lease of no message', id)
        dropped = dropped + 1
      elseif not past and (redis.call('ZSCORE', DUE, id) or redis.call('ZSCORE', DEAD, id) or packed_due(id)) then
        add_issue('leased and elsewhere', id)
        dropped = dropped + 1
      else
        lines[#lines + 1] = entry_line(id, epoch, max)
        dues[#dues + 1] = due
      end
    end
    if left > 0 then
      add_issue('lease unreadable', lease)
      ended[#ended + 1] = lease
    elseif #lines == 0 then
      if dropped == 0 then add_issue('lease without messages', lease) end
      ended[#ended + 1] = lease
    else
      if dropped > 0 then
        kept[#kept + 1] = lease
        kept[#kept + 1] = lease_text(lines, dues)
      end
      if not redis.call('ZSCORE', EXPIRY, lease) then
        add_issue('lease without deadline', lease)
        deadlines[#deadlines + 1] = now
        deadlines[#deadlines + 1] = lease
      end
    end
  end
  if not repair then return end
  write('HSET', LEASE, kept)
  write('ZADD', EXPIRY, deadlines)
  write('HDEL', LEASE, ended)
  write('ZREM', EXPIRY, ended)
end

local function msg_page(step)
  local longest, unusual = tonumber(meta[2] or 0), meta[3]
  for i = 1, #step, 2 do
    local id, envelope = step[i], step[i + 1]
    local flags = string.byte(strip_prefix(envelope)) or 128
    if #envelope > longest then
      add_issue('longest too small', id)
      longest = #envelope
    end
    if not unusual and flags < 128 and flags % 8 ~= 0 then -- a claim buries unreadable messages
      add_issue('unusual flag missing', id)
      unusual = 1
    end
    if not redis.call('ZSCORE', DUE, id) and not redis.call('ZSCORE', DEAD, id) and not packed_due(id, envelope) then
      stateless[#stateless + 1] = id
    end
  end
  if not repair or not meta[1] then return end
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
  tries = function() records_page(scan('HSCAN', TRIES, 200)) end,
  due = function() due_page(scan('ZSCAN', DUE, 200)) end,
  dead = function() dead_page(scan('ZSCAN', DEAD, 200)) end,
  far = function() buckets_page(scan('HSCAN', FAR, 20)) end,
  fars = function() bucket_index_page(scan('ZSCAN', FARS, 200)) end,
  total = packed_count_page,
  expiry = function() expiry_page(scan('ZSCAN', EXPIRY, 200)) end,
  lease = function() lease_page(scan('HSCAN', LEASE, 2)) end,
  msg = function()
    local count = math.floor(MAX_BYTES / math.max(1, tonumber(meta[2] or 1)))
    msg_page(scan('HSCAN', MSG, math.max(1, math.min(200, count))))
  end,
}
if pages[ARGV[1]]() == BUSY then return BUSY end
return { next_cursor, found, stateless }
