#!lua flags=allow-oom
--- Claims the only ready message like claim.lua, or the first one, but handles only the common case, at half the cost.
-- KEYS   as common.go lists them
-- ARGV   1 session, 2 request number, 3 lease duration in ms, 4 lease id
--        5 channel of the process, which waits if it asked for more; "" if it does not listen
--        6 "1" if it asked for one message
-- Reply  {now in us, time in ms when the process has to claim again or -1, more, deadline, lease text, value of
--        MESSAGES}; UNCOMMON if nothing was done because the queue has another format or is paused, no message or
--        several are ready, one has to be inspected or has a record, leases, buckets or dedup windows end, dead messages
--        exceed the retention, a request of the session is repeated, or another process has to be notified
-- Safe   every key was read before the first write, LEASES by it: it alone can fail.
--@include keys
--@include clock
--@include enlist
local format, packed, max_age, max_count
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
  elseif field == 'paused' then
    return UNCOMMON
  end
end
local now, now_us = read_clock()
local head = redis.call('ZRANGE', DUE, '0', '1', 'WITHSCORES')
local id, due_text = head[1], head[2]
local next_due = tonumber(head[4] or '')
if format ~= FORMAT or not id or tonumber(due_text) > now or next_due and next_due <= now and ARGV[6] ~= '1' then
  return UNCOMMON
end
if max_count and redis.call('ZCARD', DEAD) > max_count then return UNCOMMON end
if max_age then
  local died = tonumber(redis.call('ZRANGE', DEAD, '0', '0', 'WITHSCORES')[2] or '')
  if died and died <= now - max_age then return UNCOMMON end
end
local coming = next_due or math.huge
local expiry = tonumber(redis.call('ZRANGE', LEASE_DEADLINES, '0', '0', 'WITHSCORES')[2] or '')
if expiry then
  if expiry <= now then return UNCOMMON end
  coming = math.min(coming, expiry)
end
if packed then
  local start = tonumber(redis.call('ZRANGE', BUCKET_STARTS, '0', '0', 'WITHSCORES')[2] or '')
  if start then
    if start <= now + PROMOTE_LEAD_MS then return UNCOMMON end
    coming = math.min(coming, start)
  end
end
-- A first attempt may arrive after its repetition, which is recorded.
local last = redis.call('HGET', SESSIONS, ARGV[1]) or redis.call('HGET', OLD_SESSIONS, ARGV[1])
if last and tonumber(string.match(last, '^%d+')) >= tonumber(ARGV[2]) then return UNCOMMON end
if redis.call('EXISTS', RECORDS, DEDUP) > 0 then
  local window_end = tonumber(redis.call('ZRANGE', DEDUP, '0', '0', 'WITHSCORES')[2] or '')
  if window_end and window_end <= now or redis.call('HEXISTS', RECORDS, id) == 1 then return UNCOMMON end
end
local value = redis.call('HGET', MESSAGES, id)
local flags = value and string.byte(value)
if flags == 128 then flags = string.byte(value, 8) end -- behind the prefix of a message that was packed
if not flags or flags >= 128 or flags % 8 > 0 then return UNCOMMON end
local first = redis.call('ZRANGE', WAKE, '0', '1', 'WITHSCORES')
if ARGV[6] == '1' and first[1] then return UNCOMMON end -- more may be ready, for another process

local deadline = now + ARGV[3]
local deadline_text, lease = string.format('%.0f', deadline), '\n\t' .. due_text .. '\n' .. id .. '\n'
redis.call('HSET', LEASES, ARGV[4], lease)
redis.call('ZADD', LEASE_DEADLINES, deadline_text, ARGV[4])
redis.call('ZREM', DUE, id)
coming = math.min(coming, deadline)
local more = ARGV[6] == '1' and 1 or 0
if more == 0 then coming = enlist(ARGV[5], first, coming, now, now_us) end
return { now_us, coming, more, deadline, lease, value }
