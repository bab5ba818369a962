#!lua flags=allow-oom
--- Ends expired leases, promotes messages due soon from buckets, then claims ready messages, earliest first, under a
--        new lease.
-- ARGV   1 maximum number of messages, 2 lease duration in ms, 3 lease id
-- Reply  {now in us, time of the next event in ms or -1, more, deadline or 0, lease text, values of MSG,
--         records or 0, ids that died, those of them that had expired}; NEWER
-- Safe   LEASE is written first, or else every key was read before. A repeated call finds its lease and returns the
--        same.
--@include keys
local meta = redis.call('HMGET', META, 'format', 'paused', 'longest', 'unusual', 'far')
--@include format
--@include now
local now_us = clock[1] * 1000000 + clock[2]
if not meta[1] then return { now_us, -1, 0, 0, '', {}, 0, {}, {} } end
--@include record
--@include lease
local died, expired = {}, {}

local function read_records(ids)
  if #ids > 0 and redis.call('HLEN', TRIES) > 0 then return redis.call('HMGET', TRIES, unpack(ids)) end
  return nil
end

-- default_text returns the lease text of the queue's first n messages, given their ids. Formatting a due time is slow
-- in Redis 7.0, so it counts how many messages share one instead of reading each, as long as that takes fewer reads.
local function default_text(ids, n)
  local parts, at = { '' }, 0
  while at < n and #parts < 64 do
    local due = redis.call('ZRANGE', DUE, at, at, 'WITHSCORES')[2]
    local count = math.min(redis.call('ZCOUNT', DUE, due, due), n - at)
    parts[#parts + 1] = '\t' .. due
    parts[#parts + 1] = table.concat(ids, '\n', at + 1, at + count)
    at = at + count
  end
  local range = at < n and redis.call('ZRANGE', DUE, at, n - 1, 'WITHSCORES') or {}
  for i = 1, #range, 2 do
    if range[i + 1] ~= range[i - 1] then parts[#parts + 1] = '\t' .. range[i + 1] end
    parts[#parts + 1] = range[i]
  end
  parts[#parts + 1] = ''
  return table.concat(parts, '\n')
end

do -- This lease id exists if the call is repeated; the first attempt and the repetition may arrive in either order.
  local text = redis.call('HGET', LEASE, ARGV[3])
  if text then
    local ids, epochs = {}, {}
    for id, _, epoch in each_entry(text) do
      ids[#ids + 1] = id
      epochs[#epochs + 1] = tonumber(epoch) or 0
    end
    local envelopes, records = redis.call('HMGET', MSG, unpack(ids)), read_records(ids)
    for i = 1, #ids do -- omit what was cancelled since, even if its id was sent again
      if parse(records and records[i]) ~= epochs[i] then envelopes[i] = false end
    end
    local deadline = tonumber(redis.call('ZSCORE', EXPIRY, ARGV[3]))
    return { now_us, now, 1, deadline, text, envelopes, records or 0, died, expired }
  end
end

redis.call('ZCARD', DUE)
local next_expiry = tonumber(redis.call('ZRANGE', EXPIRY, 0, 0, 'WITHSCORES')[2])

-- Promote packed messages that are due soon.
local packed = not meta[2] and tonumber(meta[5] or '') or 0
local next_bucket -- when the first bucket starts; no packed message is due before
if packed > 0 then
  local first = redis.call('ZRANGE', FARS, 0, 0, 'WITHSCORES')
  next_bucket = tonumber(first[2] or '')
  if next_bucket and next_bucket <= now + PROMOTE_LEAD_MS then
    redis.call('HLEN', LEASE)
    redis.call('HLEN', MSG)
    redis.call('HLEN', TRIES)
    redis.call('ZCARD', DEAD)
    redis.call('ZCARD', DONE)
    redis.call('ZCARD', WAKE)
    --@include write
    --@include buckets
    --@include promote
    next_bucket = promote_soon(next_bucket, first[1], tonumber(ARGV[1]))
  end
end

-- End expired leases: at most REAP_LEASES of them and about MAX_BATCH messages.
if next_expiry and next_expiry <= now then
  --@include write
  local past = redis.call('ZRANGE', EXPIRY, '-inf', now, 'BYSCORE', 'LIMIT', 0, REAP_LEASES, 'WITHSCORES')
  redis.call('ZCARD', DEAD)
  redis.call('HLEN', MSG)
  redis.call('ZCARD', DONE)
  redis.call('ZCARD', WAKE)
  local ended, again, dead, reaped = {}, {}, {}, 0
  for i = 1, #past, 2 do
    if reaped >= MAX_BATCH then break end
    local lease, deadline = past[i], past[i + 1]
    ended[#ended + 1] = lease
    local ids, held = {}, {}
    for id, _, epoch, max in each_entry(redis.call('HGET', LEASE, lease) or '') do
      ids[#ids + 1] = id
      held[#held + 1] = { tonumber(epoch) or 0, tonumber(max) or DEFAULT_ATTEMPTS }
    end
    reaped = reaped + #ids
    local records = read_records(ids)
    for k, id in ipairs(ids) do
      local recorded = current_record(id, records and records[k])
      local epoch, attempts, _, refcount = parse(recorded)
      if epoch ~= held[k][1] then
        set_record(id, drop_ref(recorded)) -- cancelled meanwhile
      elseif attempts + 1 >= held[k][2] then
        died[#died + 1] = id
        dead[#dead + 1] = now
        dead[#dead + 1] = id
        local rest = deadline .. '\tlease_expired\t' .. LEASE_EXPIRED_TEXT
        set_record(id, record(epoch, attempts + 1, '1', refcount, rest))
      else
        again[#again + 1] = deadline
        again[#again + 1] = id
        set_record(id, record(epoch, attempts + 1, '1', refcount, '\t\t' .. LEASE_EXPIRED_TEXT))
      end
    end
  end
  write('ZADD', DUE, again)
  write('ZADD', DEAD, dead)
  write_records()
  write('HDEL', LEASE, ended)
  write('ZREM', EXPIRY, ended)
  next_expiry = tonumber(redis.call('ZRANGE', EXPIRY, 0, 0, 'WITHSCORES')[2])
end

local max = tonumber(ARGV[1])
local ids = {}
if not meta[2] then ids = redis.call('ZRANGE', DUE, '-inf', now, 'BYSCORE', 'LIMIT', 0, max) end
local n = #ids
local longest = tonumber(meta[3] or 0)
if n * longest > MAX_BYTES then
  -- Some messages may be long: take only as many as fit in a reply.
  local bytes = 0
  for i = 1, n do
    bytes = bytes + redis.call('HSTRLEN', MSG, ids[i])
    if bytes > MAX_BYTES and i > 1 then
      for k = i, n do ids[k] = nil end
      n = i - 1
      break
    end
  end
end
local next_due_ms = not meta[2] and tonumber(redis.call('ZRANGE', DUE, n, n, 'WITHSCORES')[2]) or nil
local unreaped = next_expiry and next_expiry <= now
if n == 0 then
  -- Nothing is ready: delete some ids whose dedup window is over.
  local dedup_expired = redis.call('ZRANGE', DONE, '-inf', now, 'BYSCORE', 'LIMIT', 0, MAX_BATCH)
  if #dedup_expired > 0 then redis.call('ZREM', DONE, unpack(dedup_expired)) end
  local coming = math.min(next_due_ms or math.huge, next_bucket or math.huge, next_expiry or math.huge)
  return { now_us, coming == math.huge and -1 or coming, unreaped and 1 or 0, 0, '', {}, 0, died, expired }
end

-- In the common case no message of this queue ever had its own attempts or expiry, and there are no records. Then
-- messages are returned as they are, and MSG is read last, when removing the entries has warmed the cache.
local records = read_records(ids)
local all_default = not records and not meta[4]
redis.call('HLEN', MSG)
local envelopes = not all_default and redis.call('HMGET', MSG, unpack(ids))
local lines, dues, claimed_values, claimed_records = {}, {}, {}, records and {} or 0
local dead, dead_records, g, d = {}, {}, 0, 0 -- g, d: lengths of what is claimed and dead
local text = ''
if all_default then
  g, text = n, default_text(ids, n)
else
  local range = redis.call('ZRANGE', DUE, 0, n - 1, 'WITHSCORES')
  for i = 1, n do
    local envelope = envelopes[i]
    -- begin is the position after the prefix, see packed_value.
    local begin = envelope and string.byte(envelope) == 128 and #envelope >= 7 and 8 or 1
    local flags = envelope and (string.byte(envelope, begin) or 128)
    if flags then
      local epoch, attempts, delivered, refcount = parse(records and records[i])
      local due, reason, limit = range[2 * i], nil, ''
      if flags >= 128 then
        reason = 'unreadable\t' .. UNREADABLE_TEXT
      else
        local from = begin + 1
        if flags % 2 == 1 then
          local hi, lo = string.byte(envelope, from, from + 1)
          limit = (hi or 0) * 256 + (lo or 0)
          from = from + 2
        end
        if flags % 8 >= 2 and delivered == '0' then
          local a, b, c, e, f, l = string.byte(envelope, from, from + 5)
          local expiry = ((a or 0) * 256 + (b or 0)) * 256 + (c or 0)
          expiry = ((expiry * 256 + (e or 0)) * 256 + (f or 0)) * 256 + (l or 0)
          if flags % 4 >= 2 then expiry = expiry + tonumber(due) end
          if expiry <= now then
            reason = 'expired\t' .. EXPIRED_TEXT
            expired[#expired + 1] = ids[i]
          end
        end
      end
      if reason then
        d = d + 2
        died[#died + 1] = ids[i]
        dead[d - 1] = now
        dead[d] = ids[i]
        dead_records[d - 1] = ids[i]
        dead_records[d] = record(epoch, attempts, delivered, refcount, due .. '\t' .. reason)
      else
        g = g + 1
        lines[g] = entry_line(ids[i], epoch > 0 and epoch or limit ~= '' and 0 or '', limit)
        dues[g] = due
        claimed_values[g] = envelope
        if records then claimed_records[g] = records[i] end
      end
    end
  end
  if g > 0 then text = lease_text(lines, dues) end
end

-- Nothing below can fail: every key it writes was read above, or is LEASE, which is written first.
local more = n == max or unreaped or next_due_ms and next_due_ms <= now or next_bucket and next_bucket <= now
if more then redis.call('ZCARD', WAKE) end
if d > 0 then redis.call('ZCARD', DEAD) end
local deadline = 0
if g > 0 then
  deadline = now + tonumber(ARGV[2])
  redis.call('HSET', LEASE, ARGV[3], text)
  redis.call('ZADD', EXPIRY, deadline, ARGV[3])
  next_expiry = math.min(next_expiry or deadline, deadline)
end
redis.call('ZREMRANGEBYRANK', DUE, 0, n - 1)
if all_default then claimed_values = redis.call('HMGET', MSG, unpack(ids)) end
if d > 0 then
  redis.call('ZADD', DEAD, unpack(dead))
  redis.call('HSET', TRIES, unpack(dead_records))
end
local coming = math.min(next_due_ms or math.huge, next_bucket or math.huge, next_expiry or math.huge)
if coming == math.huge then coming = -1
elseif more then redis.call('ZADD', WAKE, 'LT', coming, 'm') end
return { now_us, coming, more and 1 or 0, deadline, text, claimed_values, claimed_records, died, expired }
