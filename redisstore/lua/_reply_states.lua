-- encode_states encodes the states of messages, each '' or a word, as one letter each. It returns nil for none.
local function encode_states(states)
  local letters = {}
  for i, state in ipairs(states) do letters[i] = state == '' and '-' or string.sub(state, 1, 1) end
  return letters[1] and table.concat(letters)
end

local function decode_states(reply)
  local words = { s = 'scheduled', r = 'ready', l = 'leased', d = 'dead', ['-'] = '' }
  local states = {}
  for letter in string.gmatch(reply, '.') do states[#states + 1] = words[letter] end
  return states
end
