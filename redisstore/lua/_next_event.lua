--@flow
--@include clock
--@include slots
--@end
--@plain
-- next_event returns when a claim may find something: the due time of the first message, the start of the first bucket
-- or the first deadline of a lease, in ms; nil if there is nothing.
local function next_event(paused, packed)
  local coming = tonumber(redis.call('ZRANGE', LEASE_DEADLINES, 0, 0, 'WITHSCORES')[2] or '')
  for _, key in ipairs(paused and {} or { DUE, packed and packed ~= '0' and BUCKET_STARTS or nil }) do
    local at = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or '')
    if at and (not coming or at < coming) then coming = at end
  end
  return coming
end
--@end
--@flow
-- next_event returns when a claim may find something: when the limits allow a first message to start, the start of
-- the first bucket or the first deadline of a lease, in ms; nil if there is nothing.
local function next_event(paused, packed)
  local coming = tonumber(redis.call('ZRANGE', LEASE_DEADLINES, 0, 0, 'WITHSCORES')[2] or '')
  local now, now_us = read_clock()
  local limits = read_limits(now_us)
  local at = not paused and next_ready(packed, limits.keyed, now, limits.urgent)
  if at then at = may_start(limits, at) end
  if at and (not coming or at < coming) then return at end
  return coming
end
--@end
