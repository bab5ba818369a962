#!lua flags=allow-oom
--- Sets or removes the limits of one key that differ from those of the others.
-- ARGV   1 session, 2 request number
--        3 key, 4 its limits as in KEY_FLOWS, "" for none
-- Reply  1; 0 if keys of the queue do not take turns; 2 if they have an order, and the limits another concurrency than
--        1; BUSY if MAX_KEY_FLOWS other keys have limits; NEWER
-- Safe   SESSIONS is written first; every other key was read before.
--@include keys
--@include any_format
--@include clock
--@include session
--@include slots
--@include overrides
--@include go_on
local key, text = ARGV[3], ARGV[4]
local format, paused, packed, keyed, key_n, key_per, key_burst, order = unpack(redis.call('HMGET', META, 'format',
  'paused', 'packed_messages', 'flow_keyed', 'flow_key_n', 'flow_key_per_us', 'flow_key_burst', 'flow_key_order'))
if not writes(format) then return NEWER end
local previous = previous_reply(ARGV[1], ARGV[2])
if previous then return tonumber(previous) or 1 end
local now, now_us = read_clock()

-- refuse_with records the request and returns the reply.
local function refuse_with(reply)
  if format then record_request(ARGV[1], ARGV[2], now, tostring(reply)) end
  return reply
end

if not keyed then return refuse_with(0) end
if order and not string.find(text, '^1?\t') and text ~= '' then return refuse_with(2) end
local former, expected = cut_mark(redis.call('HGET', KEY_FLOWS, key))
if text ~= '' and not former and redis.call('HLEN', KEY_FLOWS) >= MAX_KEY_FLOWS then return refuse_with(BUSY) end
read_slots()
read_flow_change()
local state = redis.call('HGET', KEY_STATES, key)

-- rate_in returns the rate of the key with limits of its own; n is nil or 0 if there is none.
local function rate_in(limits)
  local n, per, burst = string.match(limits or '', '^%d*\t(%d+)\t(%d+)\t(%d+)\t')
  if not n then n, per, burst = key_n, key_per, key_burst end
  return { n = tonumber(n or '') or 0, per = tonumber(per or ''), burst = tonumber(burst or '') }
end

-- changed_state returns the state with the time of the next start under another rate. One that did not exist begins
-- with its full burst.
local function changed_state(from, to)
  local leased, us, rem, n, pass = string.match(state, '^(%d+)\t(%d+)\t(%d+)\t(%d+)\t(.*)$')
  if not leased then return state end
  us, rem = tonumber(us), tonumber(rem)
  if from.n == 0 or to.n == 0 then
    us, rem = 0, 0
  else
    if tonumber(n) ~= to.n then us, rem = rem > 0 and us + 1 or us, 0 end
    local most, most_rem = after(to, now_us, 0, to.burst)
    if us > most or us == most and rem > most_rem then us, rem = most, most_rem end
  end
  return string.format('%s\t%.0f\t%.0f\t%.0f\t%s', leased, us, rem, us > 0 and to.n or 0, pass)
end

record_request(ARGV[1], ARGV[2], now)
if expected then
  redis.call('HSET', KEY_FLOWS, key, with_mark(text))
elseif text == '' then
  redis.call('HDEL', KEY_FLOWS, key)
else
  redis.call('HSET', KEY_FLOWS, key, text)
end
if state then redis.call('HSET', KEY_STATES, key, changed_state(rate_in(former), rate_in(text))) end
local limits = read_limits(now_us)
local places, k = new_places(limits), read_waiting(limits, { key })[1]
if k.place then
  places.set(k)
  places.write()
  local at = not paused and next_ready(packed, keyed, now, limits.urgent)
  if at then notify(at, now) end
end
return 1
