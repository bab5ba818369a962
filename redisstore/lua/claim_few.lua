#!lua flags=allow-oom
--- Claims all ready messages like claim.lua, or the first one, but handles only the common case, at two fifths of the
--- cost.
-- KEYS   as common.go lists them
-- ARGV   1 lease duration in ms, 2 lease id
--        then, unless it asks for one message: 3 maximum number of messages
--        4 channel of the process, which waits; "" if it does not listen
-- Reply  {now in us, time in ms when the process has to claim again or -1, more, deadline, lease text, then values of
--        MESSAGES}; UNCOMMON if nothing was done because the queue has another format or is paused, no message or
--        more than FEW_READY are ready, or as many as asked for except one, one has to be inspected or has a record,
--        they are long, leases, buckets or dedup windows end, dead messages exceed the retention, a claim was repeated
--        lately, or another process has to be notified
-- Safe   every key was read before the first write, LEASES by it: it alone can fail.
--@include keys
--@include now
local format, packed, max_age, max_count, longest
local meta = redis.call('HGETALL', META)
for i = 1, #meta, 2 do
  local field = meta[i]
  if field == 'format' then
    format = meta[i + 1]
  elseif field == 'packed_messages' then
    packed = meta[i + 1] ~= '0'
  elseif field == 'dead_max_age_ms' then
    max_age = tonumber(meta[i + 1])
  elseif field == 'dead_max_count' then
    max_count = tonumber(meta[i + 1])
  elseif field == 'max_envelope_bytes' then
    longest = meta[i + 1]
  elseif field == 'paused' or field == 'repeats_until' then
    return UNCOMMON
  end
end
-- Redis formats a score slowly, so a claim reads few of them. A claim of one need not know when to claim again.
local one, n = not ARGV[3], 1
local ready = redis.call('ZRANGE', DUE, '0', one and '0' or '1', 'WITHSCORES')
local due_text = ready[2]
if format ~= FORMAT or not due_text or tonumber(due_text) > now then return UNCOMMON end
local next_due = tonumber(ready[4] or '')
if next_due and next_due <= now then
  ready = redis.call('ZRANGE', DUE, '0', FEW_READY, 'WITHSCORES')
  while next_due and next_due <= now do
    n = n + 1
    next_due = tonumber(ready[2 * n + 2] or '')
  end
  if n > FEW_READY or n >= tonumber(ARGV[3]) or n * longest > CLAIM_BYTES then return UNCOMMON end
end
if max_count and redis.call('ZCARD', DEAD) > max_count then return UNCOMMON end
if max_age then
  local died = tonumber(redis.call('ZRANGE', DEAD, '0', '0', 'WITHSCORES')[2] or '')
  if died and died <= now - max_age then return UNCOMMON end
end
local coming = next_due or math.huge
-- Leases matter if one has ended or ends within this second, or else before a message that is due soon.
local ends = one and seconds .. '999' or next_due and next_due < now + 1000 and ready[2 * n + 2]
if not ends or redis.call('ZCOUNT', LEASE_DEADLINES, '-inf', ends) > 0 then
  local expiry = tonumber(redis.call('ZRANGE', LEASE_DEADLINES, '0', '0', 'WITHSCORES')[2] or '')
  if expiry then
    if expiry <= now then return UNCOMMON end
    coming = math.min(coming, expiry)
  end
end
if packed then
  local bucket = redis.call('ZRANGE', BUCKET_STARTS, '0', '0')[1]
  if bucket then -- its name is its class and its number; see _buckets.lua
    local number = tonumber(string.sub(bucket, 2)) or 0
    local start = number * math.max(1, BUCKET_WIDEST_MS / 4 ^ (string.byte(bucket) - 97))
    if start <= now + PROMOTE_LEAD_MS then return UNCOMMON end
    coming = math.min(coming, start)
  end
end
local ids, lease = { ready[1] }, '\n\t' .. due_text .. '\n' .. ready[1] .. '\n'
for i = 2, n do
  local text, id = ready[2 * i], ready[2 * i - 1]
  if text ~= due_text then
    due_text = text
    lease = lease .. '\t' .. text .. '\n'
  end
  ids[i], lease = id, lease .. id .. '\n'
end
local others = one and redis.call('EXISTS', RECORDS, DEDUP, WAKE) or redis.call('EXISTS', RECORDS, DEDUP)
if others > 0 then
  if one and redis.call('EXISTS', WAKE) == 1 then return UNCOMMON end -- more may be ready, for another process
  local window_end = tonumber(redis.call('ZRANGE', DEDUP, '0', '0', 'WITHSCORES')[2] or '')
  if window_end and window_end <= now then return UNCOMMON end
  for i = 1, n do
    if redis.call('HEXISTS', RECORDS, ids[i]) == 1 then return UNCOMMON end
  end
end
local values = n == 1 and { redis.call('HGET', MESSAGES, ids[1]) } or redis.call('HMGET', MESSAGES, unpack(ids))
for i = 1, n do
  local flags = values[i] and string.byte(values[i])
  if flags == 128 then flags = string.byte(values[i], 8) end -- behind the prefix of a message that was packed
  if not flags or flags >= 128 or flags % 8 > 0 then return UNCOMMON end
end
local waiting = {} -- another process and its promise
if not one then
  local first = redis.call('ZRANGE', WAKE, '0', '1')
  local other = first[first[1] == ARGV[4] and 2 or 1]
  if other then waiting = { other, redis.call('ZSCORE', WAKE, other) } end
end

local deadline = now + ARGV[1]
redis.call('HSET', LEASES, ARGV[2], lease)
redis.call('ZADD', LEASE_DEADLINES, string.format('%d', deadline), ARGV[2])
redis.call('ZREM', DUE, unpack(ids))
if one then return { now_us, -1, 1, deadline, lease, values[1] } end
coming = math.min(coming, deadline)
--@include enlist
return { now_us, enlist(ARGV[4], waiting, coming, now, now_us), 0, deadline, lease, unpack(values) }
