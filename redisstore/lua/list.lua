#!lua flags=no-writes
--- Lists one page of the scheduled, ready or dead messages, by due time or time of death, then by id.
-- ARGV   1 state, 2 from in ms or "", 3 to (exclusive) in ms or "", 4 limit, 5 score and 6 id of the last
--        message of the previous page, or "", 7 "1" to leave out values and records
-- Reply  {now, 1 if the listing ends here, ids and scores, values of MESSAGES, records, score and id to continue
--        after}; NEWER
--@include keys
--@include format
--@include clock
--@include buckets
--@include byte_order
local format, packed = unpack(redis.call('HMGET', META, 'format', 'packed_messages'))
if not reads(format) then return NEWER end
local now = read_clock()
local limit = tonumber(ARGV[4])
local key = ARGV[1] == 'dead' and DEAD or DUE
local from, to = tonumber(ARGV[2]) or -math.huge, tonumber(ARGV[3]) or math.huge
if ARGV[1] == 'scheduled' then from = math.max(from, now + 1) end
if ARGV[1] == 'ready' then to = math.min(to, now + 1) end

local found, ended = {}, true -- messages of the page, and perhaps more: score, id, score as text

-- below counts the messages with a lower score than base and score. base is 0, or SORTED for sorted messages.
local function below(score, base)
  score = base + math.max(base > 0 and 0 or -math.huge, math.min(score, SORTED - 1))
  return redis.call('ZCOUNT', key, '-inf', string.format('(%.0f', score))
end

-- add_range adds the messages of the page that have a score from base on.
local function add_range(base)
  local start, stop = below(from, base), below(to, base)
  if ARGV[5] ~= '' then
    local through = redis.call('ZCOUNT', key, '-inf', tonumber(ARGV[5]) + base)
    start = math.max(start, first_after(key, below(tonumber(ARGV[5]), base), through, ARGV[6]))
  end
  local last = math.min(start + limit, stop) - 1
  local range = last >= start and redis.call('ZRANGE', key, start, last, 'WITHSCORES') or {}
  for i = 1, #range, 2 do
    local score = range[i + 1] - base
    found[#found + 1] = { score, range[i], string.format('%.0f', score) }
  end
  ended = ended and last >= stop - 1
end

local function sort_found()
  table.sort(found, function(a, b)
    if a[1] ~= b[1] then return a[1] < b[1] end
    return a[2] ~= b[2] and not_after(a[2], b[2])
  end)
end

add_range(0)
--@flow
local unsorted = #found
if key == DUE then add_range(SORTED) end
if unsorted > 0 and #found > unsorted then sort_found() end
--@end
local horizon = math.huge -- buckets from here on were not read

packed = key == DUE and tonumber(packed or '') or 0
if packed > 0 then
  local buckets = open_buckets(packed)
  local after = tonumber(ARGV[5]) or -math.huge
  local start, dues = math.max(from, after), {}

  local function read_bucket(b)
    for due, id in buckets.each_line(b) do
      if due >= from and due < to and (due > after or due == after and not not_after(id, ARGV[6])) then
        dues[#dues + 1] = due
        found[#found + 1] = { due, id, string.format('%.0f', due) }
      end
    end
  end

  local min_start = '-inf'
  if start > -math.huge then -- buckets that start earlier may hold messages due then
    min_start = string.format('(%.0f', start)
    local names = buckets.names_at(start)
    buckets.load(names)
    for _, name in ipairs(names) do read_bucket(buckets.get(name)) end
  end
  local seen = buckets.counter_below(dues)
  local names = redis.call('ZRANGE', BUCKET_STARTS, min_start, '+inf', 'BYSCORE', 'LIMIT', 0, 41, 'WITHSCORES')
  for k = 1, #names, 2 do
    local starts = tonumber(names[k + 1])
    if starts >= to then break end
    if k > 80 or seen(starts) >= limit then
      horizon = starts
      break
    end
    read_bucket(buckets.get(names[k]))
  end
  if #dues > 0 then sort_found() end
end

local listed, envelopes, records, bytes = {}, {}, {}, 0
local score, id, ids_only = ARGV[5], ARGV[6], ARGV[7] == '1'
for i, m in ipairs(found) do
  local record = not ids_only and redis.call('HGET', RECORDS, m[2])
  if not ids_only then bytes = bytes + redis.call('HSTRLEN', MESSAGES, m[2]) + #(record or '') end
  if i > limit or m[1] >= horizon or bytes > PAGE_BYTES and i > 1 then
    ended = false
    break
  end
  score, id = m[3], m[2]
  listed[2 * i - 1], listed[2 * i] = id, score
  if ids_only then
    envelopes[i] = redis.call('HEXISTS', MESSAGES, id) == 1 and ''
  else
    envelopes[i] = redis.call('HGET', MESSAGES, id)
  end
  records[i] = record
end
if horizon < math.huge then
  ended = false
  if not listed[1] then score, id = string.format('%.0f', horizon), '' end
end
return { now, ended and 1 or 0, listed, envelopes, records, score, id }
