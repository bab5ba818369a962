--@include format
--@flow
--@include any_format
--@end
--@include write
--@include due
--@include record
--@include earliest
--@include waiting
--@include existing
--@include pack
--@include update_meta
--@include groups
--@flow
--@include arrivals
--@end
-- use makes a queue the one that all functions work on. from is where its keys begin in KEYS.
local function use(from)
--@plain
  DUE, MESSAGES, LEASES, LEASE_DEADLINES, RECORDS, DEAD, DEDUP, META, SESSIONS, OLD_SESSIONS, BUCKETS, BUCKET_STARTS,
    BUCKET_COUNTS, WAKE, GROUPS = unpack(KEYS, from, from + QUEUE_KEYS - 1)
--@end
--@flow
  DUE, MESSAGES, LEASES, LEASE_DEADLINES, RECORDS, DEAD, DEDUP, META, SESSIONS, OLD_SESSIONS, BUCKETS, BUCKET_STARTS,
    BUCKET_COUNTS, WAKE, GROUPS, LANES, KEY_STATES, TURNS, RESTS, OLD_RESTS, FORGET, KEY_FLOWS,
    HOLDERS, HALTED, TURNS_HIGH, TURNS_LOW = unpack(KEYS, from, from + QUEUE_KEYS - 1)
--@end
end

-- plan_add reads the keys for adding messages to the current queue, and returns a function that adds them, without
-- messages with ids that are live or within their dedup window. It calls the function with the same queue in use.
-- Instead, it returns nil and a reply if the queue has another format, or does not exist and may not be created.
--
-- queue is {create = "1" or "0", longest = length of the longest value, inspect = "1" or "0"}; the others are lists of
-- ids, due times in ms and envelopes. changes collects the changes to the queue's records, for the caller to write.
-- freed has the ids of messages that the caller removes, so that they are not live.
--
-- places has, for messages that are sorted at once if the queue has an order, their places, or 0 for one behind all
-- earlier ones.
local function plan_add(queue, ids, dues, envelopes, changes, freed, now, now_us, places)
  local format, max_envelope_bytes, inspect_envelopes, packed =
    unpack(redis.call('HMGET', META, 'format', 'max_envelope_bytes', 'inspect_envelopes', 'packed_messages'))
  if not writes(format) then return nil, NEWER end
  if not format and queue.create ~= '1' then return nil, UNREGISTERED end
  local stored, records, dedup = read_existing(ids, tonumber(max_envelope_bytes or 0))
  local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')

  local buckets = open_buckets(packed)
--@flow
  local arrivals = new_arrivals(now_us)
--@end
  local seen, values, z, grouped, first = {}, {}, {}, {}, nil
  local pack_dues, pack_ids, pack_at = {}, {}, {} -- pack_at: positions of their values
  for i, id in ipairs(ids) do
    local live = stored[i] and not freed[id]
    if not (live or seen[id] or dedup and dedup[i] and tonumber(dedup[i]) > now) then
      seen[id] = true
      values[#values + 1], values[#values + 2] = id, envelopes[i]
      local group = group_of(envelopes[i])
      if group then grouped[#grouped + 1], grouped[#grouped + 2] = group, id end
      local arrives
--@flow
      local place = places[i]
      arrives = place and arrivals.add(id, envelopes[i], place > 0 and place or nil)
--@end
      if dues[i] - now > PACK_AFTER_MS and #envelopes[i] <= PACK_MAX_ENVELOPE then
        pack_at[#pack_at + 1] = #values
        pack_dues[#pack_at], pack_ids[#pack_at] = dues[i], id
      elseif not arrives then
        z[#z + 1], z[#z + 2] = dues[i], id
        if not first or dues[i] < first then first = dues[i] end
      end
      local record = changes.current(id, records and records[i])
      if record then
        local epoch, _, _, refcount = parse_record(record)
        changes.set(id, format_record(epoch, 0, '0', refcount, ''))
      end
    end
  end
  first = pack(buckets, pack_dues, pack_ids, pack_at, values, z, first)
  local anyone = is_earliest(head, first) and redis.call('ZCARD', WAKE) > 0
  if grouped[1] then redis.call('ZCARD', GROUPS) end
  return function()
    if not values[1] then return end
    if anyone then notify(first, now) end
    buckets.write()
    write('HSET', MESSAGES, values)
    write('ZADD', DUE, z)
--@flow
    arrivals.write(now)
--@end
    write('ZADD', GROUPS, grouped)
    update_meta(format, max_envelope_bytes, inspect_envelopes, queue.longest, queue.inspect)
  end
end
