-- note_answer keeps beside a call's number what its repetition has to answer, where that cannot be found again; META was read.
local function note_answer(caller, number, answer)
  redis.call('HSET', META, 'answer:' .. caller, number .. ':' .. answer)
end

-- noted_answer is what note_answer kept of the call with this number; empty for none.
local function noted_answer(caller, number)
  local of, answer = string.match(redis.call('HGET', META, 'answer:' .. caller) or '', '^(%d+):(.*)$')
  return of == number and answer or ''
end
