--@include pack
-- pack_values packs messages as pack does. values has their envelopes at the positions at, and gets the stored form of
-- packed ones there. Messages that are not packed are appended to z, a list of due times and ids. first is the earliest
-- due time so far, or nil; pack_values returns it with these messages.
local function pack_values(buckets, dues, ids, at, values, z, first)
  if #at == 0 then return first end
  local classes, lowest = pack(buckets, dues, ids)
  for k, position in ipairs(at) do
    if classes[k] then
      values[position] = buckets.value(dues[k], classes[k], values[position])
    else
      z[#z + 1], z[#z + 2] = dues[k], ids[k]
      if not first or dues[k] < first then first = dues[k] end
    end
  end
  if lowest and (not first or lowest < first) then first = lowest end
  return first
end
