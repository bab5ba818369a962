package main

import (
	"fmt"
	"io"
	"time"
)

// progressWriter shows progress on one line of a terminal, ten times a second at most.
type progressWriter struct {
	to      io.Writer
	shown   bool
	began   time.Time
	written time.Time
}

// show shows a line, which is formatted only if it is time.
func (p *progressWriter) show(line func(elapsed time.Duration) string) {
	if now := time.Now(); p.shown && now.Sub(p.written) >= 100*time.Millisecond {
		p.written = now
		fmt.Fprintf(p.to, "\r%s%s", line(now.Sub(p.began)), clearLine)
	}
}

func (p *progressWriter) clear() {
	if p.shown {
		fmt.Fprintf(p.to, "\r%s", clearLine)
	}
}
