-- write executes a command with a list of arguments, at most 2 * MAX_BATCH for most scripts, well below the limit of
-- unpack. Scripts collect such lists while they check and write at their end. Every key was read before, so that a key
-- of the wrong type fails the script before its first write.
local function write(command, key, list)
  for i = 1, #list, 4000 do
    redis.call(command, key, unpack(list, i, math.min(i + 3999, #list)))
  end
end
