-- read_existing returns the state of some ids in the queue: for each whether it is live (true or its value), its
-- record, and the end of its dedup window. The last two are false if the queue has none at all. Values are only read if
-- all of max_bytes each fit in PAGE_BYTES: an HMGET is faster than many calls.
local function read_existing(ids, max_bytes)
  local live
  if #ids * max_bytes <= PAGE_BYTES then
    live = redis.call('HMGET', MESSAGES, unpack(ids))
  else
    live = {}
    for i, id in ipairs(ids) do live[i] = redis.call('HEXISTS', MESSAGES, id) == 1 end
  end
  local records = redis.call('HLEN', RECORDS) > 0 and redis.call('HMGET', RECORDS, unpack(ids))
  local dedup = redis.call('ZCARD', DEDUP) > 0 and redis.call('ZMSCORE', DEDUP, unpack(ids))
  return live, records, dedup
end
