-- Claims of a Fair queue sort ready messages by key; see _lanes.lua. A sorted message stays in DUE, with its due time
-- plus SORTED as its score, so that scripts that remove it or set its due time need not know. Readers take it for a
-- ready message that is due at that time. No due time is as late as SORTED.

-- due_in returns the due time in a score of DUE as a number; nil for no score.
local function due_in(score)
  score = tonumber(score or '')
  return score and score >= SORTED and score - SORTED or score
end

-- due_text_in returns the due time in a score of DUE as text; false for no score.
local function due_text_in(score)
  if not score or tonumber(score) < SORTED then return score end
  return string.format('%.0f', score - SORTED)
end

-- earliest_sorted returns the earliest due time of the sorted messages; nil if there are none.
local function earliest_sorted()
  return due_in(redis.call('ZRANGE', DUE, SORTED, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2])
end
