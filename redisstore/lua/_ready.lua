--@include record_changes
--@include inspect
--@include promote
--@include read_records
--@include drop_dead
--@include waiting
--@include enlist
--@flow
--@include slots
--@include flow_change
--@include turns
--@end
-- promote promotes packed messages that are due soon. It returns the start of the first bucket, or nil if there is
-- none. No packed message is due before it.
local function promote(packed, now, want)
  local name, start = unpack(redis.call('ZRANGE', BUCKET_STARTS, 0, 0, 'WITHSCORES'))
  start = tonumber(start or '')
  if not start or start > now + PROMOTE_LEAD_MS then return start end
  for _, key in ipairs({ LEASES, MESSAGES, RECORDS }) do redis.call('HLEN', key) end
  for _, key in ipairs({ DEAD, DEDUP, WAKE, GROUPS }) do redis.call('ZCARD', key) end
  return promote_soon(open_buckets(packed), now, start, name, want)
end

-- end_expired_leases ends at most REAP_LEASES expired leases with at most MAX_BATCH messages. It returns the ids of the
-- messages that died, and the number of all.
local function end_expired_leases(now)
  local past = redis.call('ZRANGE', LEASE_DEADLINES, '-inf', now, 'BYSCORE', 'LIMIT', 0, REAP_LEASES, 'WITHSCORES')
  redis.call('HLEN', MESSAGES)
  for _, key in ipairs({ DEAD, DEDUP, WAKE, GROUPS }) do redis.call('ZCARD', key) end
  local changes = new_record_changes()
  local ended, again, dead, died, reaped = {}, {}, {}, {}, 0
--@flow
  local _, now_us = read_clock()
  local freed, freed_keys, heads, holds = 0, {}, read_heads(), {}
--@end
  for i = 1, #past, 2 do
    local lease, deadline = past[i], past[i + 1]
    local ids, held = {}, {}
    local uncounted = string.find(lease, UNCOUNTED_LEASE, 1, true) == 1
    local text = redis.call('HGET', LEASES, lease) or ''
--@flow
    local keyed = counts_keys(text, heads)
--@end
    for id, due, epoch, max, key in each_entry(text) do
      ids[#ids + 1] = id
      held[#held + 1] = { epoch = tonumber(epoch) or 0, max = tonumber(max) or DEFAULT_ATTEMPTS, due = due }
--@flow
      held[#held].key = keyed and key
--@end
    end
    if reaped > 0 and reaped + #ids > MAX_BATCH then break end
    ended[#ended + 1] = lease
    reaped = reaped + #ids
--@flow
    if counts(text, heads) then freed = freed + #ids end
    if keyed then count_keys(text, nil, freed_keys) end
--@end
    local records = read_records(redis.call('HLEN', RECORDS), ids, 1, #ids)
    for k, id in ipairs(ids) do
      local record = changes.current(id, records and records[k])
      local epoch, attempts, _, refcount, rest = parse_record(record)
      local successor = successor_due(rest)
      if epoch ~= held[k].epoch then
        changes.drop_ref(id, record) -- cancelled in between
      elseif successor then
        changes.succeed(id, epoch, refcount)
        again[#again + 1], again[#again + 2] = successor, id
      elseif uncounted then
--@plain
        again[#again + 1] = held[k].due
--@end
--@flow
        again[#again + 1] = untouched_due(held[k].due, heads, held[k].key, now)
--@end
        again[#again + 1] = id
--@flow
        hold_key(holds, heads, held[k].key, 'w', id)
--@end
      else
        attempts = attempts + 1
        local failures = add_failure(failures_of(rest), tonumber(deadline), attempts, '0\31\31' .. LEASE_EXPIRED_TEXT)
        if attempts >= held[k].max then
          died[#died + 1] = id
          dead[#dead + 1], dead[#dead + 2] = now, id
--@flow
          hold_key(holds, heads, held[k].key, 'd', id, now)
--@end
          rest = deadline .. '\tlease_expired\t'
        else
          again[#again + 1], again[#again + 2] = deadline, id
--@flow
          hold_key(holds, heads, held[k].key, 'w', id)
--@end
          rest = '\t\t'
        end
        changes.set(id, format_record(epoch, attempts, '1', refcount, rest .. failures .. '\t' .. LEASE_EXPIRED_TEXT))
      end
    end
  end
  write('ZADD', DUE, again)
  write('ZADD', DEAD, dead)
  changes.write()
  write('HDEL', LEASES, ended)
  write('ZREM', LEASE_DEADLINES, ended)
--@flow
  if freed > 0 then
    local leased = tonumber(redis.call('HGET', META, 'flow_leased') or '') or 0
    redis.call('HSET', META, 'flow_leased', math.max(0, leased - freed))
  end
  if next(freed_keys) then free_keys(read_limits(now_us), freed_keys, holds) end
--@end
  return died, reaped
end

-- read_values returns the values of as many of the messages as fit in so many bytes, at least one, given the length of
-- the queue's longest one, and their number. It reads no more than fits at a time.
local function read_values(ids, max_bytes, bound)
  local values, n, bytes = {}, 0, 0
  while n < #ids do
    local count = math.min(#ids - n, math.max(1, math.floor((bound - bytes) / max_bytes)))
    local part = redis.call('HMGET', MESSAGES, unpack(ids, n + 1, n + count))
    for i = 1, count do
      bytes = bytes + #(part[i] or '')
      if bytes > bound and n > 0 then return values, n end
      n = n + 1
      values[n] = part[i]
    end
  end
  return values, n
end

-- kill moves messages that inspect_all found to DEAD and out of the lists of ids, lines, values and records; all but
-- the first may be nil. It returns the ids that died, and the ids among them that had expired.
local function kill(dead, now, ids, lines, values, records)
  local z, changes, died, expired = {}, new_record_changes(), {}, {}
  for k, d in ipairs(dead) do
    local i, due, reason, text = unpack(d)
    local epoch, attempts, delivered, refcount, rest = parse_record(records and records[i])
    died[k] = ids[i]
    if reason == 'expired' then expired[#expired + 1] = ids[i] end
    z[2 * k - 1], z[2 * k] = now, ids[i]
    rest = due .. '\t' .. reason .. '\t' .. failures_of(rest) .. '\t' .. text
    changes.set(ids[i], format_record(epoch, attempts, delivered, refcount, rest))
  end
  for k = #dead, 1, -1 do
    local i = dead[k][1]
    table.remove(ids, i)
    if lines then table.remove(lines, i) end
    if values then table.remove(values, i) end
    if records then table.remove(records, i) end
  end
  redis.call('ZREM', DUE, unpack(died))
  redis.call('ZADD', DEAD, unpack(z))
  changes.write()
  return died, expired
end

-- earliest_of returns the earliest of three times, which may be nil.
local function earliest_of(a, b, c)
  local first = math.min(a or math.huge, b or math.huge, c or math.huge)
  return first < math.huge and first or nil
end

-- read_claim_meta returns the fields of META that a claim needs.
local function read_claim_meta()
  return redis.call('HMGET', META, 'format', 'paused', 'max_envelope_bytes', 'inspect_envelopes', 'packed_messages',
--@plain
    'dead_max_age_ms', 'dead_max_count', 'repeats_until')
--@end
--@flow
    'dead_max_age_ms', 'dead_max_count', 'repeats_until', 'flow_keyed', 'flow_unsorting', 'flow_claimed_us',
    'flow_unholding', 'flow_urgency')
--@end
end

-- find_ready does the housekeeping of a claim and finds up to max ready messages, earliest first, as many as fit in so
-- many bytes. meta is the result of read_claim_meta. It returns their ids; their values, nil unless they had
-- to be read; the next message with the ones before it if they are few, as ZRANGE returns them; the time of the next
-- event that does not depend on these messages; whether more is left to do now; the first two processes of WAKE with
-- their scores; the ids that died; and the ids that were dropped, if any can be.
local function find_ready(meta, now, max, bound)
  local paused, max_envelope_bytes, inspect_envelopes, packed, max_age, max_count = unpack(meta, 2, 7)
  max_envelope_bytes = tonumber(max_envelope_bytes or 0)
  redis.call('ZCARD', DUE)
--@flow
  local keyed, unsorting, claimed_us, unholding, urgent = unpack(meta, 9, 13)
  if keyed then
    read_sets(urgent)
    redis.call('ZCARD', DEAD)
    redis.call('HLEN', RECORDS)
    redis.call('HLEN', MESSAGES)
  elseif max_age or max_count then
    redis.call('ZCARD', HALTED)
  end
--@end
  local next_expiry = tonumber(redis.call('ZRANGE', LEASE_DEADLINES, 0, 0, 'WITHSCORES')[2])
  packed = not paused and tonumber(packed or '') or 0
  local next_bucket = packed > 0 and promote(packed, now, max) or nil
  local died, reaped = {}, 0
  if next_expiry and next_expiry <= now then
    died, reaped = end_expired_leases(now)
    next_expiry = tonumber(redis.call('ZRANGE', LEASE_DEADLINES, 0, 0, 'WITHSCORES')[2])
  end
  local dropped = (max_age or max_count) and drop_dead(max_age, max_count, now) or nil
  if reaped + (dropped and #dropped or 0) > MAX_BATCH / 5 then
    max, bound = math.min(max, MAX_BATCH / 10), bound / 10
  end
--@flow
  -- A claim looks for expired messages among those that a limit holds back.
  local limits = read_limits(meta.now_us)
  limits.asked, limits.forwards, limits.claimed_us = max, meta.forwards, tonumber(claimed_us or '')
  if limits.forwards then limits.free = math.huge end
  limits.allowed = starts_allowed(limits, max)
  local unsorted_more = unsorting and unsort()
  if limits.keyed then
    if unholding then unhold(limits) end
    if limits.reordering then reorder(limits) end
    if not paused then
      limits.turns = find_turns(limits, { latest = next_bucket and math.min(now, next_bucket - 1) or now, now = now,
        next_bucket = next_bucket, bound = bound, inspect = inspect_envelopes, max_bytes = max_envelope_bytes,
        read_values = read_values, kill = kill })
    end
    max = 0 -- the rest looks at what is not sorted
  elseif unsorting and not unsorted_more then
    max = 0 -- the queue may be a plain one from now on
  elseif inspect_envelopes then
    local held_back = math.max(1, math.floor(HELD_BACK_BYTES / math.max(1, max_envelope_bytes)))
    max = math.max(limits.allowed, math.min(max, MAX_HELD_BACK, held_back))
  else
    max = limits.allowed
  end
--@end

  -- Packed messages may be due before messages that are due later than the start of the next bucket.
  local latest = next_bucket and math.min(now, next_bucket - 1) or now
  local ids = paused and {} or redis.call('ZRANGE', DUE, '-inf', latest, 'BYSCORE', 'LIMIT', 0, max)
  local values
  if inspect_envelopes or #ids * max_envelope_bytes > bound then
    local fitting
    values, fitting = read_values(ids, max_envelope_bytes, bound)
    for i = #ids, fitting + 1, -1 do ids[i] = nil end
  end
  local n = #ids
  local from = n <= FEW_MESSAGES and 0 or n
--@plain
  local following = paused and {} or redis.call('ZRANGE', DUE, from, n, 'WITHSCORES')
--@end
--@flow
  local front = limits.turns and limits.turns.in_front or 0
  local following = paused and {} or redis.call('ZRANGE', DUE, front + from, front + n, 'WITHSCORES')
--@end
  local next_due = tonumber(following[2 * (n - from) + 2] or '')
  local unreaped = next_expiry and next_expiry <= now or dropped and #dropped == MAX_DROPPED
--@plain
  local more = unreaped or n == max and n > 0 or next_due and next_due <= now or next_bucket and next_bucket <= now
--@end
--@flow
  if next_due and next_due >= SORTED then next_due = nil end
  if unsorted_more then next_due = now end
  limits.unreaped = unreaped
  limits.waiting = next_due and next_due <= now or next_bucket and next_bucket <= now
  limits.event, limits.expiry = earliest_of(next_due, next_bucket), next_expiry
--@end
  -- Some ids with an expired dedup window are deleted by each claim, because a queue may never be idle.
  local dedup_expired = redis.call('ZRANGE', DEDUP, '-inf', now, 'BYSCORE', 'LIMIT', 0, MAX_BATCH)
  if #dedup_expired > 0 then redis.call('ZREM', DEDUP, unpack(dedup_expired)) end
  if n == 0 then
    -- An empty queue forgets the needs of its messages.
    if (inspect_envelopes or max_envelope_bytes > CLAIM_BYTES / MAX_BATCH) and redis.call('HLEN', MESSAGES) == 0 then
      redis.call('HDEL', META, 'inspect_envelopes', 'max_envelope_bytes')
    end
  end
--@plain
  return ids, values, from == 0 and following, earliest_of(next_due, next_bucket, next_expiry), more,
    redis.call('ZRANGE', WAKE, 0, 1, 'WITHSCORES'), died, dropped
end
--@end
--@flow
  return ids, values, from == 0 and following, redis.call('ZRANGE', WAKE, 0, 1, 'WITHSCORES'), died, dropped, limits
end

-- hold_back returns how many of n messages that find_ready found are claimed or die. It leaves in dead, which
-- inspect_all returned, the messages before the first one that a limit holds back.
local function hold_back(limits, n, dead)
  local dies, alive = {}, 0
  for _, d in ipairs(dead or {}) do dies[d[1] ] = true end
  for i = 1, n do
    if not dies[i] and alive == limits.allowed then
      limits.held = true
      n = i - 1
      break
    end
    if not dies[i] then alive = alive + 1 end
  end
  for k = #(dead or {}), 1, -1 do
    if dead[k][1] > n then table.remove(dead, k) end
  end
  return n
end

-- end_claim charges the limits for n starts and makes sure that a process claims when the next message may start: the
-- caller if it has room for it, and otherwise one that waits. deadline is that of the new lease, or nil. It returns the
-- time in us when the caller has to claim again, or -1, and whether more is left to do now: 0; 1; or 2 if nothing is,
-- but the caller does not wait.
local function end_claim(limits, n, deadline, any_died, process, first_waiting, now)
  charge(limits, n, not limits.forwards)
  if limits.turns then
    limits.turns.finish()
    see_turns(limits)
  end
  local at = limits.waiting and now or limits.event
  local start = at and may_start(limits, at)
  -- Expired messages may follow the ones that have just died.
  local more = limits.unreaped or limits.unsorted or start and start <= now or
    any_died and limits.waiting and not limits.held
  if more then start = now end
  more = more or not limits.turns and n == limits.asked and n > 0 and may_start(limits, now) == now
  local coming = earliest_of(start, limits.expiry, deadline)
  if not more and n < limits.asked then
    return to_us(enlist(process, first_waiting, coming, now, limits.now_us)), 0
  end
  if first_waiting[1] and (n == limits.asked or more and n > 0) then
    redis.call('ZREM', WAKE, process)
    if coming then notify_event(coming, now) end
  end
  return to_us(coming or -1), more and 1 or 2
end
--@end
