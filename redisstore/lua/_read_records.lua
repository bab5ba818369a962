-- read_records returns the records of the ids at positions from to last of a list, false for ids without one, or nil if
-- none of them has one. count is the number of fields of RECORDS. If there are few, it is faster to read their ids than
-- to look up each id.
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

-- read_first_records returns the records of a list of ids as read_records does. It cuts the list, and that of their
-- values if there is one, where the records become long.
local function read_first_records(ids, values)
  local count, all, from, bytes = redis.call('HLEN', RECORDS), nil, 1, 0
  if count <= FEW_RECORDS then return read_records(count, ids, 1, #ids) end
  while from <= #ids do
    if bytes > RECORD_BYTES then
      for i = #ids, from, -1 do ids[i] = nil end
      for i = values and #values or 0, from, -1 do values[i] = nil end
      break
    end
    local last = math.min(from + 99, #ids)
    local some = read_records(count, ids, from, last)
    for i = from, some and last or 0 do
      all = all or {}
      all[i] = some[i - from + 1]
      bytes = bytes + #(all[i] or '')
    end
    from = last + 1
  end
  return all
end
