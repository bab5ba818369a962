-- encode_positions encodes distinct positions, which it sorts, as ranges: "1-3 7". It returns nil for none.
local function encode_positions(positions)
  table.sort(positions)
  local ranges, first = {}, nil
  for i, position in ipairs(positions) do
    first = first or position
    if positions[i + 1] ~= position + 1 then
      ranges[#ranges + 1] = first == position and position or first .. '-' .. position
      first = nil
    end
  end
  return ranges[1] and table.concat(ranges, ' ')
end

local function decode_positions(reply)
  local positions = {}
  for first, last in string.gmatch(reply, '(%d+)%-?(%d*)') do
    for position = tonumber(first), tonumber(last) or tonumber(first) do positions[#positions + 1] = position end
  end
  return positions
end
