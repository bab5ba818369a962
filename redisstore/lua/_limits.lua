-- The limits of a queue with a flow, and their state, are fields of META:
--   flow_since        when the queue got a flow, in us, and the number of the request or "create"; see _slots.lua
--   flow_concurrency  how many messages may be leased; none: no limit
--   flow_leased       how many are, of those that count
--   flow_n, flow_per_us, flow_burst   the rate; none: no limit
--   flow_next_us, flow_rem            the time of the next start as if all were spaced evenly, in us and in parts of
--                                     flow_n of a us; none: any time that has passed
-- A plain queue has none of them. All arithmetic is in whole numbers below 2^53.

--@include after

-- set_limits sets the limits of the queue or of a key, given as texts: n, per and burst are nil if there is no rate.
-- free is how many slots are free.
local function set_limits(limits, concurrency, n, per, burst, us, rem)
  limits.free = math.huge
  if concurrency then
    limits.concurrency = tonumber(concurrency)
    limits.free = math.max(0, limits.concurrency - limits.leased)
  end
  if not n then return limits end
  limits.n, limits.per, limits.burst = tonumber(n), tonumber(per), tonumber(burst)
  us, rem = tonumber(us or '') or 0, tonumber(rem or '') or 0
  local now_us = limits.now_us
  local most, most_rem = after(limits, now_us, 0, limits.burst)
  if us < now_us then
    us, rem = now_us, 0
  elseif us > most or us == most and rem > most_rem then -- the clock was set back
    us, rem, limits.capped = most, most_rem, true
  end
  limits.us, limits.rem = us, rem
  return limits
end

-- read_limits returns the limits of the queue in use at a time in us. keyed is nil unless keys take turns; see
-- _lanes.lua.
local function read_limits(now_us)
  local read = redis.call('HMGET', META, 'flow_since', 'flow_concurrency', 'flow_leased', 'flow_n', 'flow_per_us',
    'flow_burst', 'flow_next_us', 'flow_rem', 'flow_keyed')
  local limits = { since = read[1], leased = tonumber(read[3] or '') or 0, now_us = now_us }
  set_limits(limits, read[2], unpack(read, 4, 8))
  if read[9] then
    local keys = redis.call('HMGET', META, 'flow_key_concurrency', 'flow_key_n', 'flow_key_per_us', 'flow_key_burst',
      'flow_key_weight', 'flow_key_order', 'flow_pass', 'flow_urgency', 'flow_pass_high', 'flow_pass_low',
      'flow_passed_normal', 'flow_passed_low', 'flow_reordering')
    limits.keyed, limits.each_key, limits.order = read[9], { unpack(keys, 1, 5) }, keys[6] or nil
    limits.of_keys = keys[1] or keys[2] or limits.order or keys[5] and keys[5] ~= '1' -- keys have limits or a weight
    limits.urgent, limits.reordering = keys[8] or nil, keys[13] or nil
    limits.clocks = { tonumber(keys[7] or '') or 0, tonumber(keys[9] or '') or 0, tonumber(keys[10] or '') or 0 }
    limits.passed = { tonumber(keys[11] or '') or 0, 0, tonumber(keys[12] or '') or 0 }
  end
  return limits
end

-- start_us returns when a rate allows the k-th start from now on.
local function start_us(limits, k)
  local us, rem = after(limits, limits.us, limits.rem, k - limits.burst)
  return math.max(rem > 0 and us + 1 or us, limits.now_us)
end

-- starts_allowed returns how many of max messages may start.
local function starts_allowed(limits, max)
  local k = math.min(max, limits.free)
  if not limits.n then return k end
  local most = limits.burst - ((limits.us - limits.now_us) * limits.n + limits.rem) / limits.per
  k = math.max(0, math.min(k, math.floor(most) + 1)) -- rounded up in case most is not exact
  while k > 0 and start_us(limits, k) > limits.now_us do k = k - 1 end
  return k
end

-- may_start returns when a message that is due at a time in ms may start, in ms with a fraction: if each start were
-- rounded to ms, a rate of many starts a second would not be reached. It returns nil if that depends on a slot.
local function may_start(limits, at)
  if limits.free <= 0 then return nil end
  local us = limits.n and start_us(limits, 1) or limits.now_us
  if us <= limits.now_us then return at end
  return math.max(at, us / 1000)
end

-- to_us returns a time in ms with a fraction, such as may_start returns, in whole us. It leaves -1 as it is.
local function to_us(ms)
  return ms < 0 and ms or math.floor(ms * 1000 + 0.5)
end

-- charge records n starts. held is true if they are leased, so that they take slots.
local function charge(limits, n, held)
  local changed = {}
  if held and n > 0 then
    limits.free, limits.leased = limits.free - n, limits.leased + n
    changed = { 'flow_leased', limits.leased }
  end
  if limits.n and (n > 0 or limits.capped) then
    limits.us, limits.rem = after(limits, limits.us, limits.rem, n)
    for _, value in ipairs({ 'flow_next_us', limits.us, 'flow_rem', limits.rem }) do changed[#changed + 1] = value end
  end
  if changed[1] then redis.call('HSET', META, unpack(changed)) end
end
