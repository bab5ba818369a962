#!lua flags=allow-oom
--- Checks one page of one of a queue's keys against the others and, if asked to, repairs the issues.
-- ARGV   1 subject: "meta", "records", "due", "dead", "bucket_starts", "buckets", "bucket_counts", "packed_messages",
--        "leases", "lease_deadlines", "groups" or "messages"; 2 cursor; 3 "1" to repair; 4 level of the bucket counts
-- Reply  {next cursor, issues: name and id alternating, ids that are neither due nor packed nor dead}; NEWER
-- Safe   every key was read before the first write. An issue exists at the moment of the script, which repairs it in
--        the same step. A page is one step of HSCAN or ZSCAN, of about PAGE_BYTES for messages.
--@include keys
--@include format
--@include clock
--@include record_changes
--@include read_records
--@include lease
--@flow
--@include slots
--@end
--@include check_buckets
--@include check_page
--@include groups
local format, max_envelope_bytes, inspect_envelopes, packed =
  unpack(redis.call('HMGET', META, 'format', 'max_envelope_bytes', 'inspect_envelopes', 'packed_messages'))
local max_age, max_count = unpack(redis.call('HMGET', META, 'dead_max_age_ms', 'dead_max_count'))
if not reads(format) then return NEWER end
local now = read_clock()
local buckets, changes = open_buckets(packed), new_record_changes()

-- strip_prefix returns the envelope in a value of MESSAGES. A message that was ever packed has seven bytes before it:
-- byte 128, then its due time and class at that time in six bytes; see _buckets.lua.
local function strip_prefix(value)
  if value and #value >= 7 and string.byte(value) == 128 then return string.sub(value, 8) end
  return value
end

local live, held_leases = redis.call('HLEN', MESSAGES), redis.call('HLEN', LEASES)
for _, key in ipairs({ BUCKETS, BUCKET_COUNTS, RECORDS }) do redis.call('HLEN', key) end
for _, key in ipairs({ BUCKET_STARTS, LEASE_DEADLINES, DEAD, WAKE, GROUPS }) do redis.call('ZCARD', key) end
local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
local repair, stateless = ARGV[3] == '1', {}
local page = new_check_page(ARGV[2])
local scan, add_issue = page.scan, page.add_issue

-- readable reports whether the scripts can parse a record, of a dead message or of any.
local function readable(text, dead)
  local _, _, _, _, rest = parse_record(text)
  return rest and (not dead or string.find(rest, '^%d+\t[%l_]+\t[^\t]*\t') ~= nil)
end

-- check_retention checks one limit of dead messages. One that cannot be read makes claims fail.
local function check_retention(field, text, most)
  if not text or string.find(text, '^%d+$') and tonumber(text) >= 1 and tonumber(text) <= most then return end
  add_issue('retention not possible', field)
  if repair then redis.call('HDEL', META, field) end
end

local function meta_page()
  check_retention('dead_max_age_ms', max_age, MAX_DEAD_AGE_MS)
  check_retention('dead_max_count', max_count, MAX_DEAD_COUNT)
  if format or live + held_leases == 0 and not head[1] then return end
  add_issue('no format', '')
  -- messages_page determines how long envelopes are and whether claims must inspect them.
  if repair then redis.call('HSET', META, 'format', FORMAT, 'inspect_envelopes', 1) end
end

local function records_page(step)
  for i = 1, #step, 2 do
    local id, text = step[i], step[i + 1]
    local exists = redis.call('HEXISTS', MESSAGES, id) == 1
    if id == '' then -- the placeholder
    elseif string.byte(id) == 9 then -- the original of a held message
      local of = string.sub(id, 2)
      local _, _, _, _, rest = parse_record(redis.call('HGET', RECORDS, of))
      if not (rest and successor_due(rest)) then
        add_issue('original without successor', of)
        changes.set(id, nil)
      end
    elseif not readable(text) then
      add_issue('record unreadable', id)
      changes.set(id, nil)
    else
      local epoch, attempts, _, refcount, rest = parse_record(text)
      if exists and not attempts then
        add_issue('tombstone with message', id)
        changes.set(id, format_record(epoch, 0, '0', refcount, ''))
      elseif exists and successor_due(rest)
        and (redis.call('ZSCORE', DUE, id) or redis.call('ZSCORE', DEAD, id) or buckets.find(id)) then
        add_issue('successor of no message', id)
        changes.succeed(id, epoch, refcount)
      elseif not exists and (refcount < 1 or held_leases == 0) then
        add_issue('record without message', id)
        changes.set(id, nil)
      end
    end
  end
  if repair then changes.write() end
end

local function due_page(step)
  local deleted, dead_removed = {}, {}
  for i = 1, #step, 2 do
    local id = step[i]
    if redis.call('HEXISTS', MESSAGES, id) == 0 then
      add_issue('due without message', id)
      deleted[#deleted + 1] = id
    elseif redis.call('ZSCORE', DEAD, id) then
      add_issue('due and dead', id)
      dead_removed[#dead_removed + 1] = id
    end
  end
  if not repair then return end
  write('ZREM', DUE, deleted)
  write('ZREM', DEAD, dead_removed)
end

local function dead_page(step)
  local deleted = {}
  for i = 1, #step, 2 do
    local id, at = step[i], step[i + 1]
    local text = redis.call('HGET', RECORDS, id)
    if redis.call('HEXISTS', MESSAGES, id) == 0 then
      add_issue('dead without message', id)
      deleted[#deleted + 1] = id
    elseif not text or not readable(text, true) then
      add_issue('dead without reason', id)
      local epoch, attempts, _, refcount = parse_record(text)
      local rest = string.format('%.0f', tonumber(at)) .. '\tfailed\t\t' .. REASON_LOST_TEXT
      changes.set(id, format_record(epoch or 0, attempts or 0, '1', refcount or 0, rest))
    end
  end
  if not repair then return end
  write('ZREM', DEAD, deleted)
  changes.write()
end

-- index_page checks that each entry of an index, a sorted set, has a field in the hash at a key.
local function index_page(index, key, issue)
  local deleted, step = {}, scan('ZSCAN', index, 200)
  for i = 1, #step, 2 do
    if redis.call('HEXISTS', key, step[i]) == 0 then
      add_issue(issue, step[i])
      deleted[#deleted + 1] = step[i]
    end
  end
  if repair then write('ZREM', index, deleted) end
end

local function leases_page(step)
  local ended, kept, deadlines = {}, {}, {}
--@flow
  local freed, of_keys, heads = 0, {}, read_heads()

  -- free_lines counts the messages of each key that are in a text of a lease and not in a new one.
  local function free_lines(text, new)
    local before, left = {}, {}
    if counts_keys(text, heads) then count_keys(text, nil, before) end
    count_keys(new, nil, left)
    for key, n in pairs(before) do of_keys[key] = (of_keys[key] or 0) + n - (left[key] or 0) end
  end

--@end
  for i = 1, #step, 2 do
    local lease, text = step[i], step[i + 1]
    local lines, dues, keys, dropped = {}, {}, {}, 0
    local _, left = string.gsub(text, '\n[^\t\n]', '')
    local ids = {}
    for id in each_entry(text) do ids[#ids + 1] = id end
    local records = read_records(redis.call('HLEN', RECORDS), ids, 1, #ids)
    local ready = ids[1] and redis.call('ZMSCORE', DUE, unpack(ids))
    local dead = ids[1] and redis.call('ZMSCORE', DEAD, unpack(ids))
    local i = 0
    for id, due, epoch, max, key in each_entry(text) do
      if not tonumber(due) then break end
      i, left = i + 1, left - 1
      local recorded = records and records[i]
      local past = recorded and readable(recorded) and parse_record(recorded) ~= (tonumber(epoch) or 0)
      local exists = redis.call('HEXISTS', MESSAGES, id) == 1
      if not past and not exists then
        add_issue('lease of no message', id)
        dropped = dropped + 1
      elseif not past and (ready[i] or dead[i] or buckets.find(id)) then
        add_issue('leased and elsewhere', id)
        dropped = dropped + 1
      else
        lines[#lines + 1] = entry_line(id, epoch, max)
        dues[#lines], keys[#lines] = due, key
      end
    end
--@flow
    if left > 0 then dropped = #ids end
    if counts(text, heads) then freed = freed + dropped end
--@end
    if left > 0 then
      add_issue('lease unreadable', lease)
      ended[#ended + 1] = lease
--@flow
      free_lines(text, '')
--@end
    elseif #lines == 0 then
      if dropped == 0 then add_issue('lease without messages', lease) end
      ended[#ended + 1] = lease
--@flow
      free_lines(text, '')
--@end
    else
      if dropped > 0 then
        local new = lease_text(lines, dues, keys)
--@flow
        free_lines(text, new)
        local head = head_of(text, heads)
        new = head and head .. string.sub(new, 2) or new
--@end
        kept[#kept + 1], kept[#kept + 2] = lease, new
      end
      if not redis.call('ZSCORE', LEASE_DEADLINES, lease) then
        add_issue('lease without deadline', lease)
        deadlines[#deadlines + 1], deadlines[#deadlines + 2] = now, lease
      end
    end
  end
  if not repair then return end
  write('HSET', LEASES, kept)
  write('ZADD', LEASE_DEADLINES, deadlines)
  write('HDEL', LEASES, ended)
  write('ZREM', LEASE_DEADLINES, ended)
--@flow
  free_slots(freed, now, of_keys)
--@end
end

local function messages_page(step)
  local grouped, ungrouped = {}, {}
  local recorded_bytes = tonumber(max_envelope_bytes or 0)
  local max_bytes, inspect = recorded_bytes, inspect_envelopes
  for i = 1, #step, 2 do
    local id, envelope = step[i], step[i + 1]
    local stripped = strip_prefix(envelope)
    local flags, group = string.byte(stripped) or 128, group_of(stripped)
    if tonumber(redis.call('ZSCORE', GROUPS, id) or '') ~= group then
      add_issue('message not in its group', id)
      if group then
        grouped[#grouped + 1], grouped[#grouped + 2] = group, id
      else
        ungrouped[#ungrouped + 1] = id
      end
    end
    if #envelope > max_bytes then
      add_issue('max_envelope_bytes too small', id)
      max_bytes = #envelope
    end
    if not inspect and flags < 128 and flags % 8 ~= 0 then -- a claim buries unreadable messages
      add_issue('inspect_envelopes missing', id)
      inspect = 1
    end
    if not redis.call('ZSCORE', DUE, id) and not redis.call('ZSCORE', DEAD, id) and not buckets.find(id, envelope) then
      stateless[#stateless + 1] = id
    end
  end
  if not repair or not format then return end
  write('ZADD', GROUPS, grouped)
  write('ZREM', GROUPS, ungrouped)
  if max_bytes > recorded_bytes then redis.call('HSET', META, 'max_envelope_bytes', max_bytes) end
  if inspect and not inspect_envelopes then redis.call('HSET', META, 'inspect_envelopes', inspect) end
end

local long = long_values(max_envelope_bytes)
local bucket_checks = new_bucket_checks(buckets, now, repair, add_issue)
local pages = {
  meta = meta_page,
  records = function() records_page(scan('HSCAN', RECORDS, read_refs() == 0 and 200 or long)) end,
  due = function() due_page(scan('ZSCAN', DUE, 200)) end,
  dead = function() dead_page(scan('ZSCAN', DEAD, 200)) end,
  buckets = function() bucket_checks.buckets_page(scan('HSCAN', BUCKETS, 20)) end,
  bucket_starts = function() index_page(BUCKET_STARTS, BUCKETS, 'indexed bucket missing') end,
  bucket_counts = function() bucket_checks.counts_page(tonumber(ARGV[4]), scan('HSCAN', BUCKET_COUNTS, 4)) end,
  packed_messages = bucket_checks.packed_count,
  lease_deadlines = function() index_page(LEASE_DEADLINES, LEASES, 'deadline without lease') end,
  groups = function() index_page(GROUPS, MESSAGES, 'group entry without message') end,
  leases = function() leases_page(scan('HSCAN', LEASES, 1)) end,
  messages = function() messages_page(scan('HSCAN', MESSAGES, long)) end,
}
pages[ARGV[1]]()
return { page.next, page.found, stateless }
