#!lua flags=allow-oom
--- Settles leased messages other than by ack: nack, snooze, restart (a snooze that resets the attempts), release, bury,
-- give_back.
-- KEYS   the keys of every script, then the properties if there is a condition
-- ARGV   1 session, 2 request number
--        3, 4 property and value of the condition, "" if there is none
--        then for each message: lease id, token, action, delay in ms, reason code (bury) or for how many ms it is
--        given back ("" for ever), error text, text after the attempt in its failure (see _record.lua)
-- Reply  for each message its state now, or its successor's ("scheduled", "ready", "dead"), or "" if it was not
--        held; NEWER; CONFLICT if the condition is not met
-- Safe   SESSIONS is written first; every other key that is written was read before.
--@include keys
--@include format
--@include clock
--@include due
--@include record_changes
--@include open_leases
--@include earliest
--@include waiting
--@include session
--@include reply_states
--@include condition
-- cut_given_back returns since when a message has been given back, or nil, and its failures without that one. It is the
-- latest failure, with the attempt 0.
local function cut_given_back(failures)
  local since, past = string.match(failures, '^(%d+)\0310\031[^\030]*\030?()')
  if not since then return nil, failures end
  return tonumber(since), string.sub(failures, past)
end

local format = redis.call('HGET', META, 'format')
if not writes(format) then return NEWER end
local now, now_us = read_clock()
local previous = previous_reply(ARGV[1], ARGV[2])
if previous == UNMET then return CONFLICT end
if previous then return decode_states(previous) end
if not is_met(KEYS[QUEUE_KEYS + 1], ARGV[3], ARGV[4]) then return refuse(ARGV[1], ARGV[2], now, format) end
local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
redis.call('ZCARD', DEAD)
redis.call('HLEN', RECORDS)
local changes = new_record_changes()
local leases = open_leases(now, changes)
--@flow
read_slots(leases.heads)
--@end
local states, due, dead, first = {}, {}, {}, nil

for a = 5, #ARGV, 7 do
  local token, action, text = ARGV[a + 1], ARGV[a + 2], ARGV[a + 5]
  local l = leases.load(ARGV[a])
  local h = l.held[token]
  local state = ''
  if h then
    local stored = changes.current(h.id, redis.call('HGET', RECORDS, h.id))
    local epoch, attempts, delivered, refcount, rest = parse_record(stored)
    if epoch ~= h.epoch then
      leases.drop_stale(l, token, stored)
    else
      local at = due_at(now_us, '+' .. ARGV[a + 3])
      local code
      local failures = failures_of(rest)
      local successor = successor_due(rest)
      leases.remove(l, token)
      if successor then
        at = tonumber(successor)
        changes.succeed(h.id, epoch, refcount)
      elseif action == 'nack' then
        attempts, delivered = attempts + 1, '1'
        failures = add_failure(failures, now, attempts, ARGV[a + 6])
        rest = '\t\t' .. failures .. '\t' .. text
        if attempts >= h.max then code = 'failed' end
      elseif action == 'snooze' or action == 'restart' then
        delivered = '1'
        local since
        since, failures = cut_given_back(failures)
        if action == 'restart' then attempts = 0 end
        if since or action == 'restart' then rest = failures ~= '' and '\t\t' .. failures .. '\t' or '' end
      elseif action == 'give_back' then
        delivered = '1'
        local since, within = nil, tonumber(ARGV[a + 4])
        since, failures = cut_given_back(failures)
        since = since or now
        if within and now - since >= within then
          attempts, code = attempts + 1, 'unreadable'
          failures = add_failure(failures, now, attempts, ARGV[a + 6])
        else
          failures = add_failure(failures, since, 0, ARGV[a + 6])
          rest = '\t\t' .. failures .. '\t' .. text
        end
      elseif action == 'release' then
--@plain
        at = tonumber(h.due)
--@end
--@flow
        at = untouched_due(h.due, leases.heads, l.keyed and h.key, now)
--@end
      else
        code = ARGV[a + 4]
        if code ~= 'unreadable' then -- no handler saw an unreadable message
          attempts, delivered = attempts + 1, '1'
          failures = add_failure(failures, now, attempts, ARGV[a + 6])
        end
      end
      if code then
        state = 'dead'
--@flow
        if action ~= 'bury' or code ~= 'unreadable' then leases.hold(l, h, 'd') end -- no handler saw an unreadable one
--@end
        dead[#dead + 1], dead[#dead + 2] = now, h.id
        rest = h.due .. '\t' .. code .. '\t' .. failures .. '\t' .. text
      else
        state = at > now and 'scheduled' or 'ready'
--@flow
        if not successor then leases.hold(l, h, 'w') end
--@end
        due[#due + 1], due[#due + 2] = at, h.id
        if not first or at < first then first = at end
      end
      if not successor and (stored or action ~= 'release') then
        changes.set(h.id, format_record(epoch, attempts, delivered, refcount, rest))
      end
    end
  end
  states[#states + 1] = state
end

local anyone = is_earliest(head, first) and redis.call('ZCARD', WAKE) > 0
if #due + #dead > 0 then record_request(ARGV[1], ARGV[2], now, encode_states(states)) end
if anyone then notify(first, now) end
write('ZADD', DUE, due)
write('ZADD', DEAD, dead)
changes.write()
leases.write()
--@flow
free_slots(leases.freed, now, leases.freed_keys, leases.holds)
--@end
return states
