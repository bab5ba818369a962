-- is_earliest reports whether due is earlier than the queue's earliest message, head: the reply to a ZRANGE of DUE with
-- the score. Then a script notifies a process that waits; see _waiting.lua.
local function is_earliest(head, due)
  return due and (not head[2] or due < tonumber(head[2]))
end
