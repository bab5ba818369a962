#!lua flags=allow-oom
--- Puts leased messages back or sets them aside: nack, snooze, release, bury.
-- ARGV   1 "1" when an earlier call with these messages may have been done and its reply lost
--        2 caller, 3 number of its call
--        then for each message: lease id, token, action, delay in ms, reason code (bury), error text
-- Reply  for each message its state now ("scheduled", "ready", "dead"), or "" when it was not held
-- Safe   CALLS is written first; every other key that is written was read.
--@include keys
--@include now
--@include record
--@include write
--@include lease
--@include wake
--@include once
local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
redis.call('ZCARD', DEAD)
redis.call('HLEN', TRIES)
local before = done_before(ARGV[2], ARGV[3])
local states, due, dead, first = {}, {}, {}, nil

for a = 4, #ARGV, 6 do
  local token, action, text = ARGV[a + 1], ARGV[a + 2], ARGV[a + 5]
  local l = load(ARGV[a], now)
  local h = l.held[token]
  local state = ''
  if h then
    local recorded = latest(h.id, redis.call('HGET', TRIES, h.id))
    local epoch, attempts, delivered, pins, rest = parse(recorded)
    if epoch ~= h.epoch then
      let_go(l, token, h, recorded)
    else
      local at = after(tonumber(ARGV[a + 3]))
      local code
      drop(l, token)
      if action == 'nack' then
        attempts, delivered, rest = attempts + 1, '1', '\t\t' .. text
        if attempts >= h.max then code = 'failed' end
      elseif action == 'snooze' then
        delivered = '1'
      elseif action == 'release' then
        at = tonumber(h.due)
      else
        code = ARGV[a + 4]
        if code ~= 'unreadable' then attempts, delivered = attempts + 1, '1' end -- no handler saw an unreadable one
      end
      if code then
        state = 'dead'
        dead[#dead + 1] = now
        dead[#dead + 1] = h.id
        rest = h.due .. '\t' .. code .. '\t' .. text
      else
        state = at > now and 'scheduled' or 'ready'
        due[#due + 1] = at
        due[#due + 1] = h.id
        if not first or at < first then first = at end
      end
      if recorded or action ~= 'release' then keep(h.id, record(epoch, attempts, delivered, pins, rest)) end
    end
  elseif ARGV[1] == '1' then
    local id = string.match(token, '^[^\t]+')
    local score = redis.call('ZSCORE', DUE, id)
    if score and action ~= 'bury' then state = tonumber(score) > now and 'scheduled' or 'ready'
    elseif (action == 'bury' or action == 'nack') and redis.call('ZSCORE', DEAD, id) then state = 'dead'
    elseif before and action ~= 'bury' then state = 'ready' end -- it was put back, and somebody has it or had it
  end
  states[#states + 1] = state
end

if comes_first(head, first) then redis.call('ZCARD', WAKE) end
if not before then note_call(ARGV[2], ARGV[3]) end
wake(head, first)
write('ZADD', DUE, due)
write('ZADD', DEAD, dead)
write_tries()
write_leases()
return states
