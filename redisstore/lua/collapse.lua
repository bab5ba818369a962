#!lua
--- Sends messages that replace scheduled and ready ones with the same ids, or follow leased ones; see
--- store.OnDuplicate. Some may repeat earlier sends; see store.Once. The ids differ, and so do the keys.
-- KEYS   the keys of every script, then the two of sends with a key if a message has one
-- ARGV   1 session, 2 request number
--        3 "1" if the queue's name is registered and the queue may be created
--@flow
--          "2" if a message has an urgency
--@end
--        4 length of the longest envelope, including the prefix of a packed one
--        5 "1" if claims must inspect one of the envelopes (attempts, expiry)
--        6 "1" if the client waits until the messages are durable, 7 "1" to add no message
--        then for each message: id; envelope, which has a time of sending; the time in the id in ms, or ""; due ("+ms"
--        from now, or ms since 1970); the change of the due time of a live message: "keep", "" to set it, or for a
--        debounce the longest wait in ms; "keep" a live one, "replace" it, or "follow" it if it is leased; "", or the
--        state that must be unchanged: due time in ms, record or "", and value, with a NUL between them; and the key
--        and the fingerprint of its store.Once, or twice ""
-- Reply  a letter for each of the first messages, as many as have about COLLAPSE_BYTES together with the ones that they
--        replace, at least one: s sent, r replaced, f follows, g follows in place of an earlier successor, x duplicate,
--        l leased, d dead, c changed, n not found, o repetition, k key of another request; a list of these letters and
--        of the sends that the keys stand for, if a message has one (see _once.lua); UNREGISTERED; NEWER
--@flow
--        NOT_URGENT if a message has an urgency, and the flow of the queue has none
--@end
-- Safe   no allow-oom: a full server refuses the whole script. SESSIONS is written first; every other key was read
--        before, BUCKETS, BUCKET_STARTS and BUCKET_COUNTS if a message is packed or leaves its bucket.
--@include keys
--@include format
--@include clock
--@include due
--@include record_changes
--@include earliest
--@include waiting
--@include session
--@include pack
--@include sent_at
--@include update_meta
--@include groups
--@include once
--@flow
--@include leave_lanes
--@include arrivals
--@end
local format, max_envelope_bytes, inspect_envelopes, packed =
  unpack(redis.call('HMGET', META, 'format', 'max_envelope_bytes', 'inspect_envelopes', 'packed_messages'))
local plain = false -- as in send.lua
--@flow
plain = ARGV[3] == '2' and format == PLAIN_FORMAT
--@end
if not (plain or writes(format)) then return NEWER end
if not format and ARGV[3] ~= '1' then return UNREGISTERED end
local now, now_us = read_clock()
local ids, keys = {}, {}
for a = 8, #ARGV, 9 do
  ids[#ids + 1] = ARGV[a]
  keys[#keys + 1] = ARGV[a + 7]
end
local once = KEYS[QUEUE_KEYS + 1] and open_once(KEYS[QUEUE_KEYS + 1], KEYS[QUEUE_KEYS + 2], keys, now)
local previous = previous_reply(ARGV[1], ARGV[2])
if previous then
  if ARGV[6] == '1' and format then redis.call('HSET', META, 'format', plain and format or FORMAT) end -- as in send.lua
  return once and once.reply(previous) or previous
end
--@flow
if plain then return NEWER end
if ARGV[3] == '2' and redis.call('HGET', META, 'flow_urgency') ~= '1' then return NOT_URGENT end
--@end
local due = redis.call('ZMSCORE', DUE, unpack(ids))
local dead = redis.call('ZMSCORE', DEAD, unpack(ids))
local records = redis.call('HMGET', RECORDS, unpack(ids))
local dedup = redis.call('ZMSCORE', DEDUP, unpack(ids))
local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
local any_grouped = redis.call('ZCARD', GROUPS) > 0
local buckets, changes = open_buckets(packed), new_record_changes()
local any_packed = buckets.packed > 0

-- state_of returns the letter for a message, and the due time of one that will be replaced, with its bucket if it is
-- packed.
local function state_of(i, value, mode)
  if not value then return dedup[i] and tonumber(dedup[i]) > now and 'x' or 's' end
  if mode == 'keep' then return 'x' end
--@plain
  if due[i] then return 'r', tonumber(due[i]) end
--@end
--@flow
  if due[i] then return 'r', due_in(due[i]) end
--@end
  if dead[i] then return 'd' end
  local at, b
  if any_packed then at, b = buckets.find(ids[i], value) end
  if at then return 'r', at, b end
  if mode ~= 'follow' then return 'l' end
  local _, _, _, _, rest = parse_record(records[i])
  local successor = successor_due(rest)
  return successor and 'g' or 'f', tonumber(successor or '')
end

-- times_of returns when a message was sent first, and its due time. value is that of the message that it replaces,
-- which is due at before, nil for none.
local function times_of(a, value, before)
  local sent, at, live_due = now, due_at(now_us, ARGV[a + 3]), ARGV[a + 4]
  if not before then return sent, at end
  local position = find_sent_at(value)
  sent = position and struct.unpack('>I6', value, position) or tonumber(ARGV[a + 2]) or now
  if live_due == 'keep' then return sent, before end
  if live_due == '' then return sent, at end
  return sent, math.min(at, math.min(sent, now) + tonumber(live_due))
end

-- if_unchanged returns the letter for a message that must not have changed.
local function if_unchanged(letter, expected, before, record, value)
  if not value then return 'n' end
  if letter ~= 'r' then return letter end
  local actual = string.format('%.0f', before) .. '\0' .. (record or '') .. '\0' .. value
  return actual == expected and 'r' or 'c'
end

--@flow
local lanes, arrivals = leave_lanes(), new_arrivals(now_us)
local entry_of = arrivals.urgent and find_entries(redis.call('HEXISTS', META, 'flow_arrival_us') == 1, arrivals.urgent)

-- place_of returns the place of a sorted message that leaves its lane for that of another class, nil if it stays there.
local function place_of(id, name, former_class, class, at)
  local urgent = arrivals.urgent
  if not urgent or class == former_class then return nil end
  local entry = entry_of(name, sorted_as(former_class, urgent), at, id)
  if not entry then return 1000 * at end -- it holds its key
  if string.byte(entry, #name + 1) + 1 == sorted_as(class, urgent) then return nil end
  return tonumber(string.sub(entry, #name + 2, #name + 18))
end
--@end
local letters, values, z, grouped, ungrouped, first = {}, {}, {}, {}, {}, nil
local pack_dues, pack_ids, pack_at = {}, {}, {} -- pack_at: positions of their values
local bytes = 0
for i, id in ipairs(ids) do
  local a = 9 * i - 1
  local mode = ARGV[a + 5]
  local letter, before, b = once and once.letter(i, ARGV[a + 8])
  local value = not letter and redis.call('HGET', MESSAGES, id)
  bytes = bytes + #(value or '') + #ARGV[a + 1] + #ARGV[a + 6]
  if bytes > COLLAPSE_BYTES and i > 1 then break end
  if not letter then
    letter, before, b = state_of(i, value, mode)
    if ARGV[7] == '1' and (letter == 's' or letter == 'r') then letter = 'n' end
    if ARGV[a + 6] ~= '' then letter = if_unchanged(letter, ARGV[a + 6], before, records[i], value) end
  end
  letters[i] = letter
  if letter == 's' or letter == 'r' or letter == 'f' or letter == 'g' then
    local sent, at = times_of(a, value, before)
    local envelope = ARGV[a + 1]
    if mode ~= 'keep' then
      local position = find_sent_at(envelope)
      envelope = string.sub(envelope, 1, position - 1) .. struct.pack('>I6', sent) .. string.sub(envelope, position + 6)
    end
    if ARGV[a + 7] ~= '' then once.add(i, ARGV[a + 8], at, id) end
    values[#values + 1], values[#values + 2] = id, envelope
    local arrives
--@flow
    local key, class = key_of(envelope)
    local former, former_class = key_of(value)
    local same_key = letter == 'r' and former == key
    if letter == 'r' and not same_key then lanes.gone(id) end
    local stays = same_key and ARGV[a + 4] == 'keep' and arrivals.keyed and tonumber(due[i] or '') or 0
    stays = stays >= SORTED
    local place = stays and place_of(id, key, former_class, class, at)
    stays = stays and not place
    arrives = stays or place and arrivals.add(id, envelope, place) or has_no_delay(ARGV[a + 3])
      and (letter == 's' or letter == 'r' and ARGV[a + 4] ~= 'keep' and at == due_at(now_us, ARGV[a + 3]))
      and arrivals.add(id, envelope)
    if not stays then lanes.add(id, due[i], value) end
--@end
    if b then
      buckets.remove_line(b, before, id)
      b.replaced = true -- the line may return to it, and then the number of its lines is as it was
    end
    if letter == 'f' or letter == 'g' then
      changes.follow(id, records[i], at, value)
    elseif not due[i] and at - now > PACK_AFTER_MS and #envelope <= PACK_MAX_ENVELOPE then
      pack_at[#pack_at + 1] = #values
      pack_dues[#pack_at], pack_ids[#pack_at] = at, id
    elseif not arrives then
      z[#z + 1], z[#z + 2] = at, id
      if not first or at < first then first = at end
    end
    local group = group_of(envelope)
    if group then
      grouped[#grouped + 1], grouped[#grouped + 2] = group, id
    elseif value and any_grouped then
      ungrouped[#ungrouped + 1] = id
    end
    if letter == 's' and records[i] then
      local epoch, _, _, refcount = parse_record(records[i])
      changes.set(id, format_record(epoch, 0, '0', refcount, ''))
    end
  end
end
letters = table.concat(letters)
if #values == 0 then
  if format then record_request(ARGV[1], ARGV[2], now, letters) end
  return once and once.reply(letters) or letters
end

first = pack(buckets, pack_dues, pack_ids, pack_at, values, z, first)
local anyone = is_earliest(head, first) and redis.call('ZCARD', WAKE) > 0
record_request(ARGV[1], ARGV[2], now, letters)
if anyone then notify(first, now) end
buckets.write()
write('HSET', MESSAGES, values)
write('ZADD', DUE, z)
--@flow
lanes.write(now)
arrivals.write(now)
--@end
write('ZADD', GROUPS, grouped)
write('ZREM', GROUPS, ungrouped)
changes.write()
if once then once.write() end
update_meta(format, max_envelope_bytes, inspect_envelopes, ARGV[4], ARGV[5])
return once and once.reply(letters) or letters
