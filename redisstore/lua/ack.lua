#!lua flags=allow-oom
--- Acks messages of any number of leases: they are gone.
-- ARGV   1 caller, 2 number of its call
--        3 number of messages to remember
--        then for each lease: lease id, number of runs, number of single messages,
--        for each run: a piece of the lease's text with all its lines, or "=" and the length of the text for all of it;
--        number of messages in it, their ids
--        for each single message: its token
--        then for each message to remember: its position (as in the reply), ms
-- Reply  positions (from 1, over all, runs first within each lease) of the messages that were not held
-- Safe   CALLS is written first; every other key that is written was read.
--@include keys
--@include now
--@include record
--@include write
--@include lease
--@include once
local before = done_before(ARGV[1], ARGV[2])
if before then return positions(before) end
local refused, gone, ended, texts, position = {}, {}, {}, {}, 0
local runs_gone = {} -- first and last argument of each run of ids
local acked = {} -- position to id, where some are to be remembered
local plain = redis.call('HLEN', TRIES) == 0

-- ack_held acks the messages that tokens name, one by one.
local function ack_held(l, tokens)
  local candidates, ids = {}, {}
  for _, token in ipairs(tokens) do
    position = position + 1
    local h = l.held[token]
    if h and not h.position then
      h.token, h.position = token, position
      candidates[#candidates + 1] = h
      ids[#ids + 1] = h.id
    else
      refused[#refused + 1] = position
    end
  end
  local records = not plain and #ids > 0 and redis.call('HMGET', TRIES, unpack(ids))
  for i, h in ipairs(candidates) do
    local recorded = latest(h.id, records and records[i])
    local epoch, _, _, pins = parse(recorded)
    if epoch ~= h.epoch then
      refused[#refused + 1] = h.position
      let_go(l, h.token, h, recorded)
    else
      gone[#gone + 1] = h.id
      acked[h.position] = h.id
      if recorded then keep(h.id, tombstone(epoch, pins)) end
      drop(l, h.token)
    end
  end
end

-- without gives a lease's text without its runs, nil when it does not have one of them. It is for leases of
-- which no message is unusual, and never looks at single messages. A text only becomes shorter, so one of the
-- length that it had at first is what it was. The last due time in a run may be that of messages below it, so it stays.
local function without(lease, a, runs)
  if string.byte(ARGV[a]) == 61 then -- "=": the text itself is not needed, and dear to read
    return ARGV[a] == '=' .. redis.call('HSTRLEN', LEASE, lease) and '' or nil
  end
  local text = redis.call('HGET', LEASE, lease)
  for _ = 1, text and runs or 0 do
    local run = ARGV[a]
    local from, to = string.find(text, run, 1, true)
    if not from then return nil end
    text = string.sub(text, 1, from) .. (string.match(run, '^.*\n(\t%d+\n)') or '') .. string.sub(text, to + 1)
    a = a + 2 + tonumber(ARGV[a + 1])
  end
  return text
end

redis.call('HLEN', MSG)
local remembered = tonumber(ARGV[3])
if remembered > 0 then redis.call('ZCARD', DONE) end
local a, last = 4, #ARGV - 2 * remembered
while a <= last do
  local lease, runs, singles = ARGV[a], tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
  a = a + 3
  local text
  if plain and singles == 0 then
    local deadline = redis.call('ZSCORE', EXPIRY, lease)
    if deadline and tonumber(deadline) > now then text = without(lease, a, runs) end
  end
  local tokens = {}
  for _ = 1, runs do
    local k = tonumber(ARGV[a + 1])
    if text then
      runs_gone[#runs_gone + 1] = a + 2
      runs_gone[#runs_gone + 1] = a + 1 + k
      for i = 1, remembered > 0 and k or 0 do acked[position + i] = ARGV[a + 1 + i] end
      position = position + k
    else
      for i = a + 2, a + 1 + k do tokens[#tokens + 1] = ARGV[i] end
    end
    a = a + 2 + k
  end
  if text and not string.find(text, '\n[^\t\n]') then
    ended[#ended + 1] = lease
  elseif text then
    texts[#texts + 1] = lease
    texts[#texts + 1] = text
  else
    for i = a, a + singles - 1 do tokens[#tokens + 1] = ARGV[i] end
    a = a + singles
    ack_held(load(lease, now), tokens)
  end
end

if #gone + #runs_gone > 0 then note_call(ARGV[1], ARGV[2], listed(refused)) end
write('HDEL', MSG, gone)
for i = 1, #runs_gone, 2 do redis.call('HDEL', MSG, unpack(ARGV, runs_gone[i], runs_gone[i + 1])) end
write_tries()
write('HDEL', LEASE, ended)
write('ZREM', EXPIRY, ended)
write('HSET', LEASE, texts)
write_leases()
if remembered > 0 then
  for i = last + 1, #ARGV, 2 do
    local id = acked[tonumber(ARGV[i])]
    if id then redis.call('ZADD', DONE, now + tonumber(ARGV[i + 1]), id) end
  end
  write('ZREM', DONE, redis.call('ZRANGE', DONE, '-inf', now, 'BYSCORE', 'LIMIT', 0, MAX_BATCH))
end
return refused
