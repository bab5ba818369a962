#!lua
--- Acks messages and sends their follow-ups, in the same queue and others. A message that is not held has none. A
--- follow-up in the same queue may have the id of the message that it follows.
-- KEYS   the keys of the queue of the acks, then of each queue with follow-ups, which can be the same again, then
--        the properties of the queue of the acks if there is a condition
-- ARGV   1 session, 2 request number
--        3, 4 property and value of the condition, "" if there is none
--        5 number of acks, then for each: lease id, token, dedup window in ms, with "g" before it if the message is in
--        a group
--        then for each queue with follow-ups: "1" if its name is registered and it may be created, length of the
--        longest envelope including the prefix of a packed one, "1" if claims must inspect one of the envelopes, number
--        of follow-ups, and for each: the number of its ack, due time ("+ms" from now, or ms since 1970), id, envelope
-- Reply  numbers (from 1) of the acks that were refused; UNREGISTERED if a queue with follow-ups does not exist;
--        NEWER; {NEWER, number (from 1) of the queue with follow-ups that has another format}; CONFLICT if the
--        condition is not met
-- Safe   no allow-oom: a full server refuses the whole script. SESSIONS is written first; every other key was read
--        before, BUCKETS, BUCKET_STARTS and BUCKET_COUNTS if a message is packed.
--@include keys
--@include format
--@include clock
--@include record_changes
--@include successors
--@include open_leases
--@include session
--@include reply_positions
--@include add_messages
--@include condition

local format = redis.call('HGET', META, 'format')
if not writes(format) then return NEWER end
local now, now_us = read_clock()
local previous = previous_reply(ARGV[1], ARGV[2])
if previous == UNMET then return CONFLICT end
if previous then return decode_positions(previous) end
if not is_met(#KEYS % QUEUE_KEYS > 0 and KEYS[#KEYS], ARGV[3], ARGV[4]) then
  return refuse(ARGV[1], ARGV[2], now, format)
end
local count = redis.call('HLEN', RECORDS)
redis.call('HLEN', MESSAGES)
redis.call('ZCARD', DEDUP)
local changes = new_record_changes()
local successors = new_successors(changes, now)
local leases = open_leases(now, changes)
local refused, is_refused, acked, is_acked, dedup, grouped = {}, {}, {}, {}, {}, {}
local acks, a = tonumber(ARGV[5]), 6
for i = 1, acks do
  local l, token = leases.load(ARGV[a]), ARGV[a + 1]
  local h = l.held[token]
  local record = h and changes.current(h.id, count > 0 and redis.call('HGET', RECORDS, h.id))
  local epoch, _, _, refcount = parse_record(record)
  if h and epoch == h.epoch and successors.take(h.id, record) then
    leases.remove(l, token)
  elseif h and epoch == h.epoch then
    acked[#acked + 1] = h.id
    is_acked[h.id] = true
    if record then changes.remove(h.id, epoch, refcount) end
    leases.remove(l, token)
    local window = tonumber(ARGV[a + 2])
    if not window then
      grouped[#grouped + 1] = h.id
      window = tonumber(string.sub(ARGV[a + 2], 2))
    end
    if window > 0 then dedup[#dedup + 1], dedup[#dedup + 2] = now + window, h.id end
  else
    if h then leases.drop_stale(l, token, record) end
    refused[#refused + 1] = i
    is_refused[i] = true
  end
  a = a + 3
end

local source = KEYS[1]
local adds = {} -- for each queue with follow-ups: where its keys begin, the function that adds them, changes of records
for from = 1 + QUEUE_KEYS, #KEYS - QUEUE_KEYS + 1, QUEUE_KEYS do
  use(from)
  local queue = { create = ARGV[a], longest = ARGV[a + 1], inspect = ARGV[a + 2] }
  local ids, dues, envelopes, places, last = {}, {}, {}, {}, a + 4 * tonumber(ARGV[a + 3])
  for f = a + 4, last, 4 do
    if not is_refused[tonumber(ARGV[f])] then
      ids[#ids + 1] = ARGV[f + 2]
      dues[#ids], envelopes[#ids] = due_at(now_us, ARGV[f + 1]), ARGV[f + 3]
--@flow
      if has_no_delay(ARGV[f + 1]) then places[#ids] = 0 end
--@end
    end
  end
  a = last + 4
  if ids[1] then
    local same = DUE == source
    local own = same and changes or new_record_changes()
    local add, reply = plan_add(queue, ids, dues, envelopes, own, same and is_acked or {}, now, now_us, places)
    if reply == NEWER then return { NEWER, (from - 1) / QUEUE_KEYS } end
    if reply then return reply end
    adds[#adds + 1] = { from = from, add = add, changes = own ~= changes and own }
  end
end

use(1)
if grouped[1] then redis.call('ZCARD', GROUPS) end
--@flow
read_slots(leases.heads)
--@end
local any_successor = successors.read()
if acked[1] or any_successor then record_request(ARGV[1], ARGV[2], now, encode_positions(refused)) end
if any_successor then successors.write() end
write('HDEL', MESSAGES, acked)
write('ZREM', GROUPS, grouped)
changes.write()
leases.write()
if dedup[1] then
  write('ZADD', DEDUP, dedup)
  write('ZREM', DEDUP, redis.call('ZRANGE', DEDUP, '-inf', now, 'BYSCORE', 'LIMIT', 0, MAX_BATCH))
end
for _, planned in ipairs(adds) do
  use(planned.from)
  planned.add()
  if planned.changes then planned.changes.write() end
end
--@flow
use(1)
free_slots(leases.freed, now, leases.freed_keys, leases.holds)
--@end
return refused
