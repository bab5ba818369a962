-- note_refusals keeps beside a call's number the positions of what it refused, where it did more than refuse; META was read.
local function note_refusals(caller, number, positions)
  redis.call('HSET', META, 'refused:' .. caller, number .. ':' .. table.concat(positions, ','))
end

-- refusals are the positions that note_refusals kept of the call with this number.
local function refusals(caller, number)
  local positions = {}
  local of, list = string.match(redis.call('HGET', META, 'refused:' .. caller) or '', '^(%d+):(.*)$')
  if of == number then
    for position in string.gmatch(list, '%d+') do positions[tonumber(position)] = true end
  end
  return positions
end
