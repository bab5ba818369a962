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
