-- Refuses a queue of another format.
if meta[1] and meta[1] ~= FORMAT then return NEWER end
