-- A lease is a text of lines, starting with an empty one. A line that starts with a tab is the due time of the
-- messages in the lines below it. Any other line is a message: its id and, unless both are at their defaults, a tab
-- and the epoch, and a tab and the maximum number of attempts. The text lists exactly the messages that are held: a
-- settle removes its lines, so the text only ever becomes shorter.
--@flow
-- Where keys take turns, a line of a tab, an at sign and a key is before the line of the due time wherever the key
-- changes: that of the messages in the lines below it.
--@end

--@plain
-- each_entry iterates over the id, due time, epoch and maximum number of attempts of each message.
local function each_entry(text)
  local lines, due = string.gmatch(text, '[^\n]+'), nil
  return function()
    local line = lines()
    while line and string.byte(line) == 9 do
      due, line = string.sub(line, 2), lines()
    end
    if not line or not string.find(line, '\t', 1, true) then return line, due, '', '' end
    local id, epoch, max = string.match(line, '^([^\t]+)\t(%d*)\t(%d*)$')
    return id, due, epoch, max
  end
end
--@end
--@flow
-- each_entry iterates over the id, due time, epoch, maximum number of attempts and key of each message. The key is nil
-- unless the message was claimed while keys took turns.
local function each_entry(text)
  local lines, due, key = string.gmatch(text, '[^\n]+'), nil, nil
  return function()
    local line = lines()
    while line and string.byte(line) == 9 do
      if string.byte(line, 2) == 64 then key = string.sub(line, 3) else due = string.sub(line, 2) end
      line = lines()
    end
    if not line or not string.find(line, '\t', 1, true) then return line, due, '', '', key end
    local id, epoch, max = string.match(line, '^([^\t]+)\t(%d*)\t(%d*)$')
    return id, due, epoch, max, key
  end
end
--@end

-- entry_line returns the line of a message.
local function entry_line(id, epoch, max)
  if max == '' and epoch == '' then return id end
  return id .. '\t' .. epoch .. '\t' .. max
end

-- lease_text joins the lines of messages, in order, given the due time and the key of each, nil for none.
local function lease_text(held, dues, keys)
  local lines, due, key = { '' }, nil, nil
  for i, line in ipairs(held) do
--@flow
    if keys[i] ~= key then
      key, due = keys[i], nil
      lines[#lines + 1] = '\t@' .. key
    end
--@end
    if dues[i] ~= due then
      due = dues[i]
      lines[#lines + 1] = '\t' .. due
    end
    lines[#lines + 1] = line
  end
  lines[#lines + 1] = ''
  return table.concat(lines, '\n')
end
