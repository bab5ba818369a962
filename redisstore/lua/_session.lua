-- Makes repeated requests idempotent; see session.go. A session makes one request at a time, with increasing numbers,
-- and a script that changes something records the number of the session's last request. A repeated request thus finds
-- that it was executed before. Requests that are not repeated look too, because a first attempt may arrive after its
-- repetition.
--
-- SESSIONS holds the sessions that made a request since its field "since". SESSION_TURN_MS later it becomes
-- OLD_SESSIONS, in place of the one before, so that a request is remembered for SESSION_TURN_MS at least. Both end by
-- themselves in a queue that is not used.

-- previous_reply returns nil if the request was not executed yet, and otherwise the part of its reply that
-- record_request kept. That is '' if nothing was kept, or if a later request of the session was executed, so no caller
-- waits for this reply. It also returns "since" for record_request, false for none.
local function previous_reply(session, number)
  local last, since = unpack(redis.call('HMGET', SESSIONS, session, 'since'))
  last = last or redis.call('HGET', OLD_SESSIONS, session)
  if not last then return nil, since end
  local of, reply = string.match(last, '^(%d+):?(.*)$')
  if tonumber(of) < tonumber(number) then return nil, since end
  return of == number and reply or '', since
end

-- record_request records a request. It is the first write of its script, and follows previous_reply. A request that
-- found nothing to change is recorded too if its queue exists, because its first attempt may still arrive when there is
-- something to change. (Refusals for a lost lease are not recorded, because leases never return.) reply is the part of
-- the reply that a repetition cannot recompute, or nil. since is the result of previous_reply, nil to read it.
local function record_request(session, number, now, reply, since)
  if since == nil then since = redis.call('HGET', SESSIONS, 'since') end
  since = tonumber(since or '')
  if not since or math.abs(now - since) >= SESSION_TURN_MS then
    if since then
      redis.call('UNLINK', OLD_SESSIONS)
      redis.call('RENAME', SESSIONS, OLD_SESSIONS)
    end
    redis.call('HSET', SESSIONS, 'since', now)
    redis.call('PEXPIRE', SESSIONS, SESSIONS_END_MS)
  end
  redis.call('HSET', SESSIONS, session, reply and number .. ':' .. reply or number)
end
