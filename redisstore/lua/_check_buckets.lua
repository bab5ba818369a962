--@include buckets
-- new_bucket_checks returns the checks of a page of BUCKETS or BUCKET_COUNTS, and of the packed count.
-- add_issue(name, id) is called for each issue.
local function new_bucket_checks(buckets, now, repair, add_issue)
  local checks, counts = {}, buckets.counts

  -- total returns the sum of the counts of some blocks of a level.
  local function total(level, first_block, last_block)
    for block = first_block, last_block do counts.want(level, block) end
    counts.load()
    local sum = 0
    for block = first_block, last_block do
      local list = counts.decode(counts.texts[level][block])
      for i = 1, #list do sum = sum + list[i] end
    end
    return sum
  end

  -- line_issue returns the issue of a line of a bucket, or nil, and whether its message exists elsewhere or not at all.
  local function line_issue(due, id, class, seen)
    local value = redis.call('HGET', MESSAGES, id)
    if not value then return 'packed without message', true end
    if seen[id] or redis.call('ZSCORE', DUE, id) or redis.call('ZSCORE', DEAD, id) then
      return 'packed and elsewhere', true
    end
    seen[id] = true
    local at, in_class = buckets.location(value)
    if at ~= due or in_class ~= class then return 'packed but not found by id', false end
    return nil
  end

  -- check_bucket checks one bucket. Misplaced lines become entries of DUE.
  local function check_bucket(name, due)
    local b = buckets.get(name)
    local class = (string.byte(name) or 0) - 97
    local width = buckets.widths[b.class]
    local listed = width and tonumber(redis.call('ZSCORE', BUCKET_STARTS, name) or '') == b.from
    local left, seen, sound = { '\n' }, {}, listed
    local _, all = string.gsub(b.text, '[^\n]+', '')
    for at, id in buckets.each_line(b) do
      local wrong, elsewhere = line_issue(at, id, class, seen)
      if not width and not elsewhere then -- the name encodes no time
        at = buckets.location(redis.call('HGET', MESSAGES, id)) or now
      end
      if not wrong and (at < b.from or at >= b.from + (width or 0)) then wrong = 'packed in wrong bucket' end
      if wrong then add_issue(wrong, id) end
      if not wrong and listed then
        left[#left + 1] = buckets.line(b, at, id)
      elseif not elsewhere then
        due[#due + 1], due[#due + 2] = at, id
      end
      all = all - 1
      sound = sound and not wrong
    end
    if all > 0 then
      add_issue('bucket unreadable', name)
      sound = false
    end
    if not listed then
      add_issue('bucket not indexed', name)
    elseif b.text == '\n' then
      add_issue('bucket without messages', name)
      sound = false
    end
    if not sound then buckets.replace_lines(b, left) end
  end

  -- missing_counts adds the blocks of counts that a bucket should have, as empty ones.
  local function missing_counts(name, missing)
    local from, _, class = buckets.range(name)
    for level = 1, from and counts.cell(class, from) or 0 do
      local field = string.char(64 + level) .. math.floor(from / counts.widths[level])
      if redis.call('HEXISTS', BUCKET_COUNTS, field) == 0 then
        missing[#missing + 1], missing[#missing + 2] = field, '\1'
        if not repair then add_issue('wrong packed count', '') end
      end
    end
  end

  function checks.buckets_page(step)
    local due, missing = {}, {}
    for i = 1, #step, 2 do
      check_bucket(step[i], due)
      if buckets.loaded[step[i]].text ~= '\n' then missing_counts(step[i], missing) end
    end
    if not repair then return end
    write('ZADD', DUE, due)
    buckets.write()
    write('HSET', BUCKET_COUNTS, missing) -- counts_page corrects them
  end

  -- block_counts returns the right counts of a block, given the counts of the next level.
  local function block_counts(level, block)
    local list, names, before = {}, {}, counts.cells_before[level]
    local from, width = block * counts.widths[level], counts.widths[level]
    for i = 1, before + 64 do list[i] = 0 end
    if level < COUNT_LEVELS then
      for i = 0, 63 do counts.want(level + 1, 64 * block + i) end
      counts.load()
      for i = 0, 63 do list[before + i + 1] = total(level + 1, 64 * block + i, 64 * block + i) end
      for class = math.max(0, 3 * level - 11), 3 * level - 9 do
        for i = 0, width / buckets.widths[class] - 1 do
          names[#names + 1] = string.format(buckets.formats[class], from / buckets.widths[class] + i)
        end
      end
    else
      names = redis.call('ZRANGE', BUCKET_STARTS, from, string.format('(%.0f', from + width), 'BYSCORE')
    end
    buckets.load(names)
    for _, name in ipairs(names) do
      local b = buckets.loaded[name]
      local at, _, cell = counts.cell(b.class, b.from)
      if at == level then list[cell + 1] = list[cell + 1] + buckets.line_count(b.text) end
    end
    while list[#list] == 0 do list[#list] = nil end
    return list
  end

  -- same_counts reports whether the text of a block has some counts.
  local function same_counts(text, list)
    if not readable_counts(text) then return false end
    local stored = counts.decode(text)
    for i = 1, math.max(#stored, #list) do
      if (stored[i] or 0) ~= (list[i] or 0) then return false end
    end
    return true
  end

  -- counts_page checks the blocks of one level. The next level must be correct.
  function checks.counts_page(level, step)
    local set, deleted = {}, {}
    for i = 1, #step, 2 do
      local field, block = step[i], tonumber(string.sub(step[i], 2))
      local at = (string.byte(field) or 0) - 64
      local valid = at >= 1 and at <= COUNT_LEVELS and block
      if at == level and valid or level == 1 and not valid then
        local list = valid and block_counts(level, block) or {}
        local text, same = counts.encode(list), same_counts(step[i + 1], list)
        if not same or not text then add_issue('wrong packed count', '') end
        if not text then
          deleted[#deleted + 1] = field
        elseif not same then
          set[#set + 1], set[#set + 2] = field, text
        end
      end
    end
    if not repair then return end
    write('HSET', BUCKET_COUNTS, set)
    write('HDEL', BUCKET_COUNTS, deleted)
  end

  -- packed_count compares the packed count in META with the counts of level 1.
  function checks.packed_count()
    local packed = total(1, 0, MAX_DUE_MS / counts.widths[1] - 1)
    if packed == buckets.packed then return end
    add_issue('wrong packed count', '')
    if repair then redis.call('HSET', META, 'packed_messages', packed) end
  end

  return checks
end
