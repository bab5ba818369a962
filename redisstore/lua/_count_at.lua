-- readable_counts reports whether a text is that of a block of BUCKET_COUNTS.
local function readable_counts(text)
  local width = string.byte(text) or 0
  return width == 1 or width > 1 and width <= 4 and #text % width == 1
end

-- count_at returns the count of a cell, given the text of its block.
local function count_at(text, cell)
  local width = string.byte(text)
  if width == 1 then return string.byte(text, cell + 2) or 0 end
  local at = 2 + cell * width
  return at < #text and struct.unpack('>I' .. width, text, at) or 0
end
