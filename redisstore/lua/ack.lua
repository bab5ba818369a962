#!lua flags=allow-oom
--- Acks messages of any number of leases and removes them.
-- ARGV   1 session, 2 request number
--        3 number of messages with a dedup window
--        then for each lease: lease id, number of runs, number of single messages,
--        for each run: the part of the lease's text with all its lines, or "=" and the length of the text for all of
--        it;
--        the number of its messages, their ids
--        for each single message: its token
--        then for each message with a dedup window: its position (as in the reply), ms
-- Reply  positions (from 1, over all, runs first within each lease) of the messages that were not held
-- Safe   CALLS is written first; every other key that is written was read before.
--@include keys
--@include now
--@include record
--@include write
--@include lease
--@include session
local previous = previous_reply(ARGV[1], ARGV[2])
if previous then return decode_positions(previous) end
local refused, deleted, ended, texts, position = {}, {}, {}, {}, 0
local deleted_runs = {} -- first and last argument of each run of ids
local acked = {} -- position to id, if any message has a dedup window
local no_records = redis.call('HLEN', TRIES) == 0

-- ack_singles acks the messages named by tokens, one by one.
local function ack_singles(l, tokens)
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
  local records = not no_records and #ids > 0 and redis.call('HMGET', TRIES, unpack(ids))
  for i, h in ipairs(candidates) do
    local recorded = current_record(h.id, records and records[i])
    local epoch, _, _, refcount = parse(recorded)
    if epoch ~= h.epoch then
      refused[#refused + 1] = h.position
      drop_stale(l, h.token, h, recorded)
    else
      deleted[#deleted + 1] = h.id
      acked[h.position] = h.id
      if recorded then set_record(h.id, tombstone(epoch, refcount)) end
      remove_entry(l, h.token)
    end
  end
end

-- cut_runs returns a lease's text without its runs, or nil if it lacks one of them. It is only for leases whose
-- messages have no records, and never looks at single messages. A text only becomes shorter, so one of its original
-- length is unchanged. The last due time in a run may apply to messages below it, so it stays.
local function cut_runs(lease, a, runs)
  if string.byte(ARGV[a]) == 61 then -- "=": the text itself is not needed, and expensive to read
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
local dedup_count = tonumber(ARGV[3])
if dedup_count > 0 then redis.call('ZCARD', DONE) end
local a, last = 4, #ARGV - 2 * dedup_count
while a <= last do
  local lease, runs, singles = ARGV[a], tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
  a = a + 3
  local text
  if no_records and singles == 0 then
    local deadline = redis.call('ZSCORE', EXPIRY, lease)
    if deadline and tonumber(deadline) > now then text = cut_runs(lease, a, runs) end
  end
  local tokens = {}
  for _ = 1, runs do
    local k = tonumber(ARGV[a + 1])
    if text then
      deleted_runs[#deleted_runs + 1] = a + 2
      deleted_runs[#deleted_runs + 1] = a + 1 + k
      for i = 1, dedup_count > 0 and k or 0 do acked[position + i] = ARGV[a + 1 + i] end
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
    ack_singles(load_lease(lease, now), tokens)
  end
end

if #deleted + #deleted_runs > 0 then record_request(ARGV[1], ARGV[2], encode_list(refused)) end
write('HDEL', MSG, deleted)
for i = 1, #deleted_runs, 2 do redis.call('HDEL', MSG, unpack(ARGV, deleted_runs[i], deleted_runs[i + 1])) end
write_records()
write('HDEL', LEASE, ended)
write('ZREM', EXPIRY, ended)
write('HSET', LEASE, texts)
write_leases()
if dedup_count > 0 then
  for i = last + 1, #ARGV, 2 do
    local id = acked[tonumber(ARGV[i])]
    if id then redis.call('ZADD', DONE, now + tonumber(ARGV[i + 1]), id) end
  end
  write('ZREM', DONE, redis.call('ZRANGE', DONE, '-inf', now, 'BYSCORE', 'LIMIT', 0, MAX_BATCH))
end
return refused
