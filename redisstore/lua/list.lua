#!lua flags=no-writes
--- One page of the messages that are scheduled, ready or dead, by due time or time of death, ties by id.
-- ARGV   1 state, 2 from in ms or "", 3 to (exclusive) in ms or "", 4 limit, 5 score and 6 id of the last
--        message of the page before, or ""
-- Reply  {now, 1 when the listing ends here, ids and scores, envelopes, records}
--@include keys
--@include now
local key = ARGV[1] == 'dead' and DEAD or DUE
local from, to = tonumber(ARGV[2]) or -math.huge, tonumber(ARGV[3]) or math.huge
if ARGV[1] == 'scheduled' then from = math.max(from, now + 1) end
if ARGV[1] == 'ready' then to = math.min(to, now + 1) end

-- not_after orders as Redis orders members of one score, by bytes; Lua's own comparison goes by the server's locale.
local function not_after(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a <= #b
end

local function below(score) -- messages with a lower score
  if score == -math.huge then return 0 end
  if score == math.huge then return redis.call('ZCARD', key) end
  return redis.call('ZCOUNT', key, '-inf', string.format('(%.0f', score))
end

local start = below(from)
if ARGV[5] ~= '' then
  -- The first rank after (score, id), found by halving, since the message itself may have moved.
  local low, high = below(tonumber(ARGV[5])), redis.call('ZCOUNT', key, '-inf', ARGV[5])
  while low < high do
    local middle = math.floor((low + high) / 2)
    if not_after(redis.call('ZRANGE', key, middle, middle)[1], ARGV[6]) then low = middle + 1 else high = middle end
  end
  start = math.max(start, low)
end
local stop = below(to)
local last = math.min(start + tonumber(ARGV[4]), stop) - 1
if last < start then return { now, 1, {}, {}, {} } end

local range = redis.call('ZRANGE', key, start, last, 'WITHSCORES')
local listed, envelopes, records, bytes = {}, {}, {}, 0
for i = 1, #range, 2 do
  local id = range[i]
  bytes = bytes + redis.call('HSTRLEN', MSG, id)
  if bytes > MAX_BYTES and i > 1 then
    last = -1
    break
  end
  listed[i], listed[i + 1] = id, range[i + 1]
  envelopes[#envelopes + 1] = redis.call('HGET', MSG, id)
  records[#records + 1] = redis.call('HGET', TRIES, id)
end
return { now, last == stop - 1 and 1 or 0, listed, envelopes, records }
