package natstest

import (
	"fmt"
	"strings"
	"sync"
)

// journal is a node's log: silent, but the last errors are kept to explain a
// failed test with. It satisfies server.Logger.
type journal struct {
	mu     sync.Mutex
	errors []string
	fatal  string
}

const journalLines = 20

func (j *journal) Noticef(string, ...any) {}
func (j *journal) Warnf(string, ...any)   {}
func (j *journal) Debugf(string, ...any)  {}
func (j *journal) Tracef(string, ...any)  {}

func (j *journal) Errorf(format string, v ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.errors = append(j.errors, fmt.Sprintf(format, v...))
	if len(j.errors) > journalLines {
		j.errors = j.errors[1:]
	}
}

// Fatalf must not end the process, as the server's own logger would.
func (j *journal) Fatalf(format string, v ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.fatal == "" {
		j.fatal = fmt.Sprintf(format, v...)
	}
}

// start forgets why the server did not start the last time.
func (j *journal) start() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fatal = ""
}

// failure is the reason why the server could not start, or "".
func (j *journal) failure() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.fatal
}

func (j *journal) text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.errors, "\n")
}
