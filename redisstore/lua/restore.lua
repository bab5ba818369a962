#!lua
--- Adds messages as another store had them; all of them or none, save for ids that are living or remembered.
-- ARGV   1 "1" when the queue's name is registered and the queue may be created
--        2 caller, 3 number of its call
--        4 length of the longest envelope, with what a far one has before it
--        5 "1" when claims have to look into one of the envelopes (attempts, expiry)
--        then for each message: id, envelope, due in ms, time of death in ms or "", failed attempts, "1" when it was
--        delivered or else "0", rest of its record (see _record.lua)
-- Reply  positions (from 1) of the messages that are duplicates; UNREGISTERED; NEWER
-- Safe   no allow-oom: a full server refuses the script whole. CALLS is written first; every other key was
--        read, FAR and FARS where a message is far.
--@include keys
local meta = redis.call('HMGET', META, 'format', 'longest', 'unusual', 'far')
--@include format
if not meta[1] and ARGV[1] ~= '1' then return UNREGISTERED end
--@include now
--@include record
--@include write
--@include wake
--@include once
local before = done_before(ARGV[2], ARGV[3])
if before then return positions(before) end
local count = (#ARGV - 5) / 7
local ids = {}
for i = 1, count do ids[i] = ARGV[7 * i - 1] end

--@include taken
redis.call('ZCARD', DEAD)

local far = tonumber(meta[4] or '') or 0
--@include far
--@include fold
local living, due, dead, duplicates, first = {}, {}, {}, {}, nil
local far_dues, far_ids, far_at = {}, {}, {} -- far_at: where their values are in living
for i = 1, count do
  local a = 7 * i - 1
  local id = ids[i]
  if stored[i] or (done and done[i] and tonumber(done[i]) > now) then
    duplicates[#duplicates + 1] = i
  else
    local died, attempts, delivered, rest = ARGV[a + 3], ARGV[a + 4], ARGV[a + 5], ARGV[a + 6]
    local at, value = tonumber(ARGV[a + 2]), ARGV[a + 1]
    local is_far = died == '' and at - now > FAR_AFTER and #value <= FAR_LONGEST
    -- The bytes of an unreadable message may be as those that a far one has before its envelope: it gets them, too.
    if string.byte(value) == 128 and not is_far then value = far_value(0, 0, value) end
    living[#living + 1] = id
    living[#living + 1] = value
    if is_far then
      far_at[#far_at + 1] = #living
      far_dues[#far_at] = at
      far_ids[#far_at] = id
    elseif died == '' then
      if not first or at < first then first = at end
      due[#due + 1] = ARGV[a + 2]
      due[#due + 1] = id
    else
      dead[#dead + 1] = math.min(tonumber(died), now)
      dead[#dead + 1] = id
    end
    local recorded = tries and tries[i]
    if recorded or died ~= '' or attempts ~= '0' or delivered ~= '0' or rest ~= '' then
      local epoch, _, _, pins = parse(recorded)
      keep(id, record(epoch, attempts, delivered, pins, rest))
    end
  end
end
if #living == 0 then
  note_call(ARGV[2], ARGV[3], listed(duplicates))
  return duplicates
end

local first_class
if #far_at > 0 then
  local classes, earliest
  classes, earliest, first_class = fold(far_dues, far_ids)
  for k, at in ipairs(far_at) do
    if classes[k] or string.byte(living[at]) == 128 then
      living[at] = far_value(far_dues[k], classes[k] or 0, living[at])
    end
    if not classes[k] then
      if not first or far_dues[k] < first then first = far_dues[k] end
      due[#due + 1] = far_dues[k]
      due[#due + 1] = far_ids[k]
    end
  end
  if earliest and (not first or earliest < first) then first = earliest end
end
if comes_first(head, first) then redis.call('ZCARD', WAKE) end
note_call(ARGV[2], ARGV[3], listed(duplicates))
wake(head, first)
if first_class then write_far(first_class) end
write('HSET', MSG, living)
write('ZADD', DUE, due)
write('ZADD', DEAD, dead)
write_tries()
--@include note
return duplicates
