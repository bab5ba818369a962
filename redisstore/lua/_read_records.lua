-- read_records returns the records of the ids at positions from to last of a list, false for those that have none, or
-- nil if none of them has one. count is the number of fields of RECORDS. If there are few, it is faster to read their
-- ids than to look up each id.
local function read_records(count, list, from, last)
  if count == 0 or from > last then return nil end
  local records
  if count > FEW_RECORDS or last - from < count then
    records = redis.call('HMGET', RECORDS, unpack(list, from, last))
    for i = 1, last - from + 1 do
      if records[i] then return records end
    end
    return nil
  end
  local known = {}
  for _, id in ipairs(redis.call('HKEYS', RECORDS)) do known[id] = true end
  for i = from, last do
    if known[list[i]] then
      if not records then
        records = {}
        for k = 1, last - from + 1 do records[k] = false end
      end
      records[i - from + 1] = redis.call('HGET', RECORDS, list[i])
    end
  end
  return records
end
