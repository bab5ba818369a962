#!lua flags=allow-oom
--- Removes messages of a state, or all of them.
-- ARGV   1 "scheduled", "ready", "dead" or "" (all, leased ones and leases too), 2 latest due time or time of
--        death in ms or "", then ids (dead ones)
-- Reply  {number, 1 when there may be more, latest time used}; NEWER
-- Safe   every key that is written was read; removing all deletes whole keys, which cannot fail and is freed
--        in the background.
--@include keys
local meta = redis.call('HMGET', META, 'format')
--@include format
--@include now
--@include record
--@include write
if ARGV[1] == '' then
  local count = redis.call('HLEN', MSG)
  redis.call('UNLINK', DUE, MSG, LEASE, EXPIRY, TRIES, DEAD, WAKE)
  redis.call('HDEL', META, 'longest')
  return { count, 0, now }
end

local key = ARGV[1] == 'dead' and DEAD or DUE
local before = tonumber(ARGV[2]) or (ARGV[1] == 'scheduled' and math.huge or now)
local ids, more = {}, 0
if #ARGV > 2 then
  local scores = redis.call('ZMSCORE', DEAD, unpack(ARGV, 3))
  for i, score in ipairs(scores) do
    if score then ids[#ids + 1] = ARGV[i + 2] end
  end
else
  local low, high = '-inf', before
  if ARGV[1] == 'scheduled' then
    low = string.format('(%.0f', now)
    if before == math.huge then
      high = redis.call('ZRANGE', DUE, -1, -1, 'WITHSCORES')[2] or now
      before = tonumber(high)
    end
  end
  ids = redis.call('ZRANGE', key, low, high, 'BYSCORE', 'LIMIT', 0, MAX_BATCH)
  if #ids == MAX_BATCH then more = 1 end
end
if #ids == 0 then return { 0, 0, before } end

redis.call('HLEN', MSG)
for i, recorded in ipairs(redis.call('HMGET', TRIES, unpack(ids))) do
  local epoch, _, _, pins = parse(recorded)
  if recorded then keep(ids[i], tombstone(epoch, pins)) end
end
local removed = redis.call('HDEL', MSG, unpack(ids))
redis.call('ZREM', key, unpack(ids))
write_tries()
return { removed, more, before }
