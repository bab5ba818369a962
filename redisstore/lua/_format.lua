-- A queue of another format is not touched.
if meta[1] and meta[1] ~= FORMAT then return NEWER end
