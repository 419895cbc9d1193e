package join

import (
	"fmt"
	"strconv"
	"strings"

	"muster/wire"
)

// maxProblems is how many are told of one request: a reply must stay small however wrong its request is.
const maxProblems = 50

// problems collects what is wrong with a request, in the order of its members. What was given is never repeated: the field
// names it, and it may be long, garbled or a secret.
type problems struct {
	list []wire.Problem
	more int // left out past maxProblems
}

func (l *problems) add(field, format string, args ...any) {
	if len(l.list) == maxProblems {
		l.more++
		return
	}
	l.list = append(l.list, wire.Problem{Field: field, Problem: fmt.Sprintf(format, args...)})
}

// pair says the same of two fields, each naming the other.
func (l *problems) pair(a, b, says string) {
	l.add(a, "%s %s", says, b)
	l.add(b, "%s %s", says, a)
}

// all is the list, with a last entry that tells how much was left out. It is nil when nothing is wrong.
func (l *problems) all() []wire.Problem {
	if l.more == 0 {
		return l.list
	}
	return append(l.list, wire.Problem{Problem: fmt.Sprintf("%d more not listed; mend these first", l.more)})
}

// oneOf wants value to be one of the choices.
func (l *problems) oneOf(field, value string, choices ...string) bool {
	for _, c := range choices {
		if value == c {
			return true
		}
	}
	if value == "" {
		l.add(field, "is required: one of %s", strings.Join(choices, ", "))
	} else {
		l.add(field, "must be one of %s", strings.Join(choices, ", "))
	}
	return false
}

// printable tells whether s is 1 to limit bytes of printable ASCII.
func printable(s string, limit int) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return s != "" && len(s) <= limit
}

// within wants a number that is given to be low to high.
func within[T uint8 | uint16 | uint32](l *problems, field string, n *T, low, high T) {
	if n != nil && (*n < low || *n > high) {
		l.add(field, "must be %d to %d", low, high)
	}
}

// given wants a list to be there, if only as [].
func given[T any](l *problems, field string, list []T) {
	if list == nil {
		l.add(field, "is required: a list, [] for none")
	}
}

// firsts finds what may be there once only. It keeps where each was seen first.
type firsts[K comparable] map[K]*firstSeen

type firstSeen struct {
	field string
	told  bool // that it is there again
}

// see notes key at field. Each repeat is a problem that names the first, and the first gets one that names its first repeat.
func (f firsts[K]) see(l *problems, key K, field, says string) {
	one, again := f[key]
	if !again {
		f[key] = &firstSeen{field: field}
		return
	}
	if !one.told {
		one.told = true
		l.add(one.field, "%s %s", says, field)
	}
	l.add(field, "%s %s", says, one.field)
}

// element is the path of a list's i-th entry.
func element(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }
