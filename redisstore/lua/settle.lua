#!lua flags=allow-oom
--- Puts leased messages back or sets them aside: nack, snooze, release, bury.
-- ARGV   1 caller, 2 number of its call
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
local before = done_before(ARGV[1], ARGV[2])
if before then return words(before) end
local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
redis.call('ZCARD', DEAD)
redis.call('HLEN', TRIES)
local states, due, dead, first = {}, {}, {}, nil

for a = 3, #ARGV, 6 do
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
  end
  states[#states + 1] = state
end

if comes_first(head, first) then redis.call('ZCARD', WAKE) end
if #due + #dead > 0 then note_call(ARGV[1], ARGV[2], listed(states)) end
wake(head, first)
write('ZADD', DUE, due)
write('ZADD', DEAD, dead)
write_tries()
write_leases()
return states
