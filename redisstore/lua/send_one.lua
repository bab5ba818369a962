#!lua
--- Sends one message like send.lua, but handles only the common case, at three fifths of the cost.
-- KEYS   as common.go lists them
-- ARGV   1 session, 2 request number
--        3 due time: "+ms" from now, or ms since 1970; 4 id, 5 envelope without own attempts, expiry or group
-- Reply  0; 1 if the message is a duplicate; 2 if it was sent and it is time to call pack.lua; UNCOMMON if nothing was
--        done because the queue does not exist or has another format, the message is the longest yet, its id has a
--        record or a dedup window, the request is repeated or the first after a turn of sessions, or the process to
--        notify is not the first in WAKE
-- Safe   no allow-oom: a full server refuses the whole script. MESSAGES is written first; every other key was read
--        before. A process that is notified of a duplicate claims in vain.
--@include keys
--@include now
--@include common_session
local meta = redis.call('HMGET', META, 'format', 'max_envelope_bytes')
if meta[1] ~= FORMAT or (meta[2] or 0) - #ARGV[5] < PREFIX_BYTES then return UNCOMMON end
local score, id = ARGV[3], ARGV[4]
if string.byte(score) == 43 then -- 43 is "+", from now, see due_at in _due.lua
  local delay = math.max(score, 0)
  score = string.format('%d', (delay > 0 and math.ceil(now_us / 1000) or now) + delay)
end
if redis.call('EXISTS', RECORDS, DEDUP) > 0
  and (redis.call('HEXISTS', RECORDS, id) == 1 or redis.call('ZSCORE', DEDUP, id)) then
  return UNCOMMON
end
local many = false -- sessions
if now_us % 16 == 0 then -- on behalf of 16 sends
--@include rehash
  speed_up_rehash(16)
  many = redis.call('HLEN', SESSIONS) > FEW_SESSIONS
end

local process, at
if redis.call('ZCOUNT', DUE, '-inf', score) == 0 then -- the earliest: see notify in _waiting.lua
  local promise
  process, promise = unpack(redis.call('ZRANGE', WAKE, '0', '0', 'WITHSCORES'))
  promise, at = tonumber(promise or ''), math.max(score, now)
  if process and promise >= now - BROKEN_AFTER_MS and promise <= at then
    process = nil
  elseif process then
    if promise < now - BROKEN_AFTER_MS or at == now and promise < IDLE and redis.call('ZCARD', WAKE) > 1 then
      return UNCOMMON
    end
    at = string.format('%d', at)
    if redis.pcall('PUBLISH', process, at .. ' ' .. WAKE) ~= 1 then return UNCOMMON end
  end
end
if redis.call('HSETNX', MESSAGES, id, ARGV[5]) == 0 then
  redis.call('HSET', SESSIONS, ARGV[1], ARGV[2] .. ':1')
  return 1
end
if many then
  -- The text is too long for the compact encoding of a small hash, in which each lookup would search all sessions.
  redis.call('HSET', SESSIONS, ARGV[1], ARGV[2], '', PLACEHOLDER)
else
  redis.call('HSET', SESSIONS, ARGV[1], ARGV[2])
end
redis.call('ZADD', DUE, score, id)
if process then redis.call('ZADD', WAKE, at, process) end
return now_us % PACK_ONE_IN == 0 and score - now > PACK_AFTER_MS and 2 or 0
