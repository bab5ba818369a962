-- The texts of KEY_FLOWS; see _lanes.lua.

-- cut_mark returns the limits in a text of KEY_FLOWS, nil for none, and whether the key is expected.
local function cut_mark(text)
  local limits = string.match(text or '', '^(.*)\tx$')
  if limits then return limits ~= '\t\t\t\t' and limits or nil, true end
  return text or nil, false
end

-- with_mark returns the text of an expected key, given its limits, nil or '' for none.
local function with_mark(limits)
  if not limits or limits == '' then limits = '\t\t\t\t' end
  return limits .. '\tx'
end
