#!lua flags=allow-oom
--- Removes messages of a state, or all of them.
-- ARGV   1 caller, 2 number of its call
--        3 "scheduled", "ready", "dead" or "" (all, leased ones and leases too), 4 latest due time or time of
--        death in ms or "", then ids (dead ones)
-- Reply  {number, 1 when there may be more, latest time used}; NEWER
-- Safe   CALLS is written first; every other key that is written was read; removing all deletes whole keys, which
--        cannot fail and is freed in the background.
--@include keys
local meta = redis.call('HMGET', META, 'format', 'far')
--@include format
--@include now
--@include record
--@include write
--@include once
local answered = done_before(ARGV[1], ARGV[2])
if answered then return positions(answered) end
local state = ARGV[3]

-- note keeps the reply, and gives it.
local function note(reply)
  if meta[1] then note_call(ARGV[1], ARGV[2], listed({ reply[1], reply[2], string.format('%.0f', reply[3]) })) end
  return reply
end

if state == '' then
  local reply = { redis.call('HLEN', MSG), 0, now }
  note(reply)
  redis.call('UNLINK', DUE, MSG, LEASE, EXPIRY, TRIES, DEAD, FAR, FARS, WAKE)
  redis.call('HDEL', META, 'longest', 'far', 'class')
  return reply
end

local key = state == 'dead' and DEAD or DUE
local far = key == DUE and tonumber(meta[2] or '') or 0
--@include far
local before = tonumber(ARGV[4]) or (state == 'scheduled' and math.huge or now)
local ids, more = {}, 0
if #ARGV > 4 then
  local scores = redis.call('ZMSCORE', DEAD, unpack(ARGV, 5))
  for i, score in ipairs(scores) do
    if score then ids[#ids + 1] = ARGV[i + 4] end
  end
else
  local low = '-inf'
  if state == 'scheduled' then
    low = string.format('(%.0f', now)
    if before == math.huge then
      before = tonumber(redis.call('ZRANGE', DUE, -1, -1, 'WITHSCORES')[2] or now)
      if far > 0 then
        local begins = place_of(redis.call('ZRANGE', FARS, -1, -1)[1] or '') or 0
        before = math.max(before, begins + FAR_WIDEST) -- nothing is later
      end
    end
  end
  ids = redis.call('ZRANGE', key, low, before, 'BYSCORE', 'LIMIT', 0, MAX_BATCH)
  if #ids == MAX_BATCH then more = 1 end
end
local undue = #ids -- the first ones are in DUE, or DEAD; the others are far
if far > 0 and more == 0 and #ARGV == 4 then
  local after = state == 'scheduled' and now or -math.huge
  local names = state == 'scheduled' and names_at(now) or {} -- buckets that begin before may hold what is due later
  load_buckets(names)
  local begun = #names
  for _, name in ipairs(redis.call('ZRANGE', FARS, begun > 0 and '(' .. now or '-inf', before, 'BYSCORE', 'LIMIT', 0, 101)) do
    names[#names + 1] = name
  end
  for k, name in ipairs(names) do
    if k > begun + 100 or #ids >= MAX_BATCH then
      more = 1
      break
    end
    local b = bucket(name)
    local left = { '\n' }
    for due, id in each_far(b) do
      if due > after and due <= before then
        ids[#ids + 1] = id
      else
        left[#left + 1] = far_line(b, due, id)
      end
    end
    if #left - 1 < lines_of(b.text) then replace_lines(b, left) end
  end
end
if #ids == 0 then return note({ 0, more, before }) end

redis.call('HLEN', MSG)
for i, recorded in ipairs(redis.call('HMGET', TRIES, unpack(ids))) do
  local epoch, _, _, pins = parse(recorded)
  if recorded then keep(ids[i], tombstone(epoch, pins)) end
end
note_call(ARGV[1], ARGV[2]) -- its answer is known after the next
local removed = redis.call('HDEL', MSG, unpack(ids))
if undue > 0 then redis.call('ZREM', key, unpack(ids, 1, undue)) end
write_far()
write_tries()
return note({ removed, more, before })
