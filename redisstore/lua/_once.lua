--@include write
-- Remembers sends with a key, so that each is made once; see store.Once. ONCE holds the sends since its field "since".
-- ONCE_WINDOW_MS later it becomes OLD_ONCE, in place of the one before, so a send is remembered for ONCE_WINDOW_MS at
-- least, and no ended one needs to be looked for. Both end by themselves in a queue that is not used. The value of a
-- key is when its window ends, 6 bytes in ms; the fingerprint, 16 bytes; when the message was due, 6 bytes; and its id.

-- open_once reads the remembered sends of some keys, '' for none. ONCE and OLD_ONCE are the names of the hashes.
local function open_once(ONCE, OLD_ONCE, keys, now)
  local new = redis.call('HMGET', ONCE, 'since', unpack(keys))
  local old = redis.call('HMGET', OLD_ONCE, unpack(keys))
  local once, added, values = {}, {}, {}
  for i in ipairs(keys) do
    local value = new[i + 1] or old[i]
    values[i] = value and struct.unpack('>I6', value) > now and value or nil
  end

  -- letter returns why a message is not sent: o for a repetition, k if the key has another fingerprint.
  function once.letter(i, fingerprint)
    if values[i] then return string.sub(values[i], 7, 22) == fingerprint and 'o' or 'k' end
  end

  -- add remembers the send of a message with a key.
  function once.add(i, fingerprint, due, id)
    values[i] = struct.pack('>I6', now + ONCE_WINDOW_MS) .. fingerprint .. struct.pack('>I6', due) .. id
    added[#added + 1], added[#added + 2] = keys[i], values[i]
  end

  -- keep remembers a send with a key as another queue had it.
  function once.keep(i, value)
    if values[i] or struct.unpack('>I6', value) <= now then return end
    values[i] = value
    added[#added + 1], added[#added + 2] = keys[i], value
  end

  -- reply returns letters with, for each, the due time and id of the send that its key stands for, or ''.
  function once.reply(letters)
    local reply = { letters }
    for i = 1, #letters do
      local first = values[i] and string.byte(letters, i) ~= 107 -- k
      reply[i + 1] = first and string.sub(values[i], 23) or ''
    end
    return reply
  end

  function once.write()
    if not added[1] then return end
    local since = tonumber(new[1] or '')
    if not since or math.abs(now - since) >= ONCE_WINDOW_MS then
      if since then
        redis.call('UNLINK', OLD_ONCE)
        redis.call('RENAME', ONCE, OLD_ONCE)
      end
      redis.call('HSET', ONCE, 'since', now)
      redis.call('PEXPIRE', ONCE, 2 * ONCE_WINDOW_MS)
    end
    write('HSET', ONCE, added)
  end

  return once
end
