#!lua flags=allow-oom
--- Acks messages of any number of leases: they are gone.
-- ARGV   1 "1" when an earlier call with these messages may have been done and its reply lost
--        2 number of ids to remember, then for each: id, ms
--        then for each lease: lease id, its whole text when all it holds is acked (else ""), number k,
--        k ids (for a whole text), or k tokens
-- Reply  positions (from 1, over all leases) of the messages that were not held
-- Safe   MSG is written first; every other key that is written was read.
--@include keys
--@include now
--@include record
--@include write
--@include lease
local refused, gone, position = {}, {}, 0
local plain = redis.call('HLEN', TRIES) == 0
local whole = {}

local function ack_held(l, first, last)
  local candidates = {}
  for i = first, last do
    position = position + 1
    local h = l.held[ARGV[i]]
    if h and not h.taken then
      h.taken = true
      h.token = ARGV[i]
      h.position = position
      candidates[#candidates + 1] = h
    elseif not (ARGV[1] == '1' and redis.call('HEXISTS', MSG, string.match(ARGV[i], '^[^\t]+')) == 0) then
      refused[#refused + 1] = position
    end
  end
  if #candidates == 0 then return end
  local records
  if not plain then
    local ids = {}
    for i, h in ipairs(candidates) do ids[i] = h.id end
    records = redis.call('HMGET', TRIES, unpack(ids))
  end
  for i, h in ipairs(candidates) do
    local recorded = latest(h.id, records and records[i])
    local epoch, _, _, pins = parse(recorded)
    if epoch ~= h.epoch then
      refused[#refused + 1] = h.position
      let_go(l, h.token, h, recorded)
    else
      gone[#gone + 1] = h.id
      if recorded then keep(h.id, tombstone(epoch, pins)) end
      drop(l, h.token)
    end
  end
end

local remembered = tonumber(ARGV[2])
if remembered > 0 then redis.call('ZCARD', DONE) end
local a = 3 + 2 * remembered
while a <= #ARGV do
  local lease, text, k = ARGV[a], ARGV[a + 1], tonumber(ARGV[a + 2])
  a = a + 3
  local deadline = text ~= '' and plain and redis.call('ZSCORE', EXPIRY, lease)
  if deadline and tonumber(deadline) > now and redis.call('HGET', LEASE, lease) == text then
    for i = a, a + k - 1 do gone[#gone + 1] = ARGV[i] end
    whole[#whole + 1] = lease
    position = position + k
  else
    ack_held(load(lease, now), a, a + k - 1)
  end
  a = a + k
end

write('HDEL', MSG, gone)
write_tries()
write('HDEL', LEASE, whole)
write('ZREM', EXPIRY, whole)
write_leases()
if remembered > 0 then
  local acked = {}
  for _, id in ipairs(gone) do acked[id] = true end
  for i = 3, 2 + 2 * remembered, 2 do
    if acked[ARGV[i]] then redis.call('ZADD', DONE, now + tonumber(ARGV[i + 1]), ARGV[i]) end
  end
  write('ZREM', DONE, redis.call('ZRANGE', DONE, '-inf', now, 'BYSCORE', 'LIMIT', 0, MAX_BATCH))
end
return refused
