-- new_check_page returns a page of a key that a script checks, from a cursor on: found has its issues, each a kind and
-- an id or key, and next is where the next page begins.
local function new_check_page(cursor)
  local page = { next = '0', found = {} }

  function page.add_issue(what, id)
    local found = page.found
    found[#found + 1], found[#found + 2] = what, id
  end

  -- scan returns what a step of HSCAN or ZSCAN has.
  function page.scan(command, key, count)
    local step = redis.call(command, key, cursor, 'COUNT', count)
    page.next = step[1]
    return step[2]
  end

  return page
end

-- long_values returns how many values of messages are about PAGE_BYTES at most, given the length of the longest.
local function long_values(max_bytes)
  return math.max(1, math.min(200, math.floor(PAGE_BYTES / math.max(1, tonumber(max_bytes or 1)))))
end
