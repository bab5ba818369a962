#!lua flags=allow-oom
--- Settles leased messages other than by ack: nack, snooze, release, bury.
-- ARGV   1 session, 2 request number
--        then for each message: lease id, token, action, delay in ms, reason code (bury), error text
-- Reply  for each message its state now ("scheduled", "ready", "dead"), or "" if it was not held
-- Safe   CALLS is written first; every other key that is written was read before.
--@include keys
--@include now
--@include record
--@include write
--@include lease
--@include notify
--@include session
local previous = previous_reply(ARGV[1], ARGV[2])
if previous then return decode_words(previous) end
local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
redis.call('ZCARD', DEAD)
redis.call('HLEN', TRIES)
local states, due, dead, first = {}, {}, {}, nil

for a = 3, #ARGV, 6 do
  local token, action, text = ARGV[a + 1], ARGV[a + 2], ARGV[a + 5]
  local l = load_lease(ARGV[a], now)
  local h = l.held[token]
  local state = ''
  if h then
    local recorded = current_record(h.id, redis.call('HGET', TRIES, h.id))
    local epoch, attempts, delivered, refcount, rest = parse(recorded)
    if epoch ~= h.epoch then
      drop_stale(l, token, h, recorded)
    else
      local at = after(tonumber(ARGV[a + 3]))
      local code
      remove_entry(l, token)
      if action == 'nack' then
        attempts, delivered, rest = attempts + 1, '1', '\t\t' .. text
        if attempts >= h.max then code = 'failed' end
      elseif action == 'snooze' then
        delivered = '1'
      elseif action == 'release' then
        at = tonumber(h.due)
      else
        code = ARGV[a + 4]
        if code ~= 'unreadable' then attempts, delivered = attempts + 1, '1' end -- no handler saw an unreadable message
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
      if recorded or action ~= 'release' then set_record(h.id, record(epoch, attempts, delivered, refcount, rest)) end
    end
  end
  states[#states + 1] = state
end

if is_earliest(head, first) then redis.call('ZCARD', WAKE) end
if #due + #dead > 0 then record_request(ARGV[1], ARGV[2], encode_list(states)) end
notify(head, first)
write('ZADD', DUE, due)
write('ZADD', DEAD, dead)
write_records()
write_leases()
return states
