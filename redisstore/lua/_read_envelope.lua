-- read_envelope reads the value of a message; see internal/envelope. It returns the positions of its flags and of its
-- payload, the flags, its dedup window in ms, 0 for none, and its headers as a list of names and values, nil for none.
-- It returns nothing if the value is not an envelope.
local function read_envelope(value)
  local at, flags = 1, string.byte(value) or 128
  if flags == 128 and #value >= 7 then -- after the prefix of a packed message
    at = 8
    flags = string.byte(value, at) or 128
  end
  if flags == 0 then return at, at + 1, 0, 0 end
  if flags >= 128 then return end
  local from, window = at + 1, 0
  if flags % 2 >= 1 then from = from + 2 end -- attempts
  if flags % 4 >= 2 then from = from + 6 end -- expiry after due
  if flags % 8 >= 4 then from = from + 6 end -- expiry
  if flags % 16 >= 8 then from = from + 4 end -- timeout
  if flags % 32 >= 16 then
    local a, b, c, d, e, f = string.byte(value, from, from + 5)
    if not f then return end
    window = ((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f
    from = from + 6
  end
  if flags % 64 >= 32 then from = from + 8 end -- time and nonce
  if from > #value + 1 then return end
  if flags < 64 then return at, from, flags, window end

  local function uvarint()
    local v, scale = 0, 1
    while scale <= 268435456 do
      local byte = string.byte(value, from)
      if not byte then return end
      from = from + 1
      v = v + byte % 128 * scale
      if byte < 128 then return v end
      scale = scale * 128
    end
  end
  local headers, count = {}, uvarint()
  if not count or count > MAX_HEADERS + 32 then return end
  for i = 1, 2 * count do
    local length = uvarint()
    if not length or from + length > #value + 1 then return end
    headers[i] = string.sub(value, from, from + length - 1)
    from = from + length
  end
  local first = 1 -- after the group, the key and other options, with names that no header can have
  while headers[first] == '' or string.find(headers[first] or '', '^%c') do first = first + 2 end
  if first > 1 then headers = { unpack(headers, first) } end
  return at, from, flags, window, headers
end
