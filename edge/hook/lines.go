package hook

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
)

// lineMax is the longest line that is passed on, in bytes; it has room for any document a command is given. Of a longer
// one only its existence is told: a part of it might show a part of a secret.
const lineMax = 1 << 20

// lastMax is how much of a failing command's last line is reported, in bytes.
const lastMax = 200

// hidden stands for a secret, and tooLong for a line.
const (
	hidden  = "[hidden]"
	tooLong = "[line too long]"
)

// newHider makes what removes secrets from a line, as they are and as they look within JSON.
func newHider(secrets []string) *strings.Replacer {
	var pairs []string
	secrets = slices.Clone(secrets)
	// The longer first, so that one that begins with another is removed whole.
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	for _, s := range secrets {
		if s == "" {
			continue
		}
		pairs = append(pairs, s, hidden)
		if quoted, err := json.Marshal(s); err == nil {
			if inner := string(quoted[1 : len(quoted)-1]); inner != s {
				pairs = append(pairs, inner, hidden)
			}
		}
	}
	return strings.NewReplacer(pairs...)
}

// shared lets two streams write to one place, whole lines at a time.
type shared struct {
	mu sync.Mutex
	to io.Writer
}

func (s *shared) line(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	io.WriteString(s.to, text+"\n") //nolint:errcheck // output that nobody takes must not stop the command
}

// lines passes on what is written to it line by line, without secrets, and keeps the last line that says something.
type lines struct {
	to    *shared
	hide  *strings.Replacer
	begun []byte // of a line, without its end yet
	over  bool   // it is too long
	last  string
}

func (l *lines) Write(b []byte) (int, error) {
	n := len(b)
	for {
		text, rest, whole := bytes.Cut(b, []byte("\n"))
		if len(l.begun)+len(text) > lineMax {
			l.over, l.begun = true, nil
		}
		if !l.over {
			l.begun = append(l.begun, text...)
		}
		if !whole {
			return n, nil
		}
		l.pass()
		b = rest
	}
}

// end passes on a last line that has no end.
func (l *lines) end() {
	if len(l.begun) > 0 || l.over {
		l.pass()
	}
}

func (l *lines) pass() {
	text := l.hide.Replace(string(l.begun))
	if l.over {
		text = tooLong
	}
	l.begun, l.over = l.begun[:0], false
	l.to.line(text)
	if text = strings.TrimSpace(text); text != "" {
		l.last = strings.ToValidUTF8(text[:min(len(text), lastMax)], "")
	}
}
