-- encode_bulk encodes the reply of a replay or purge.
local function encode_bulk(done, more, before)
  return string.format('%.0f %.0f %.0f', done, more, before)
end

local function decode_bulk(reply)
  local numbers = {}
  for number in string.gmatch(reply, '%S+') do numbers[#numbers + 1] = tonumber(number) end
  return numbers
end
