package runtime

import (
	"slices"
	"strings"

	"muster/wire"
)

// Border is what one account of NATS imports from another. Functions trust each other and share one, with JetStream; everybody
// else is in the other, which imports. An answer goes where the asker says, whatever the asker may publish; between
// accounts that is a subject in the asker's own, where nothing is stored.
//
// An import must not take such an answer in once more. The server sees to that for imports of one and the same export, so
// there is one of everything, for the other account alone, and the imports choose. The functions' account imports nothing:
// of two accounts that import from each other, nats-server 2.15.2 shows one without JetStream while it reads their tokens.
type Border struct {
	Asked []string // services inside, for those outside
	Heard []string // streams from inside, for those outside: what functions ask of them, too
}

// BorderOf is the border between functions and others, whose names are wildcards where there may be many.
func BorderOf(inside, outside []Permissions) Border {
	var b Border
	var answers []string
	for _, p := range outside {
		follows := slices.ContainsFunc(p.Publish, wire.IsAPIConsumerCreate)
		for _, s := range p.Subscribe {
			subject, queue, _ := strings.Cut(s, " ")
			switch {
			case queue != "":
				answers = append(answers, subject)
			case wire.IsDiscovery(subject): // nobody asks across
			case follows || !wire.IsInbox(subject):
				b.Heard = append(b.Heard, subject)
			}
		}
	}
	for _, p := range inside {
		for _, s := range p.Publish {
			if withinAny(s, answers) {
				b.Heard = append(b.Heard, s)
			}
		}
	}
	for _, p := range outside {
		for _, s := range p.Publish {
			among := withinAny(s, answers) || wire.IsInbox(s) && !strings.HasPrefix(s, wire.Inbox(wire.Functions)+".")
			if s != wire.APIUserInfo && !among {
				b.Asked = append(b.Asked, s)
			}
		}
	}
	// Nobody may ask for it. But an account that does not import it gets all of JetStream's API from the server, which
	// then answers beside the functions' account, that there is no JetStream.
	b.Asked = append(b.Asked, wire.APIInfo)
	return Border{Asked: widest(b.Asked), Heard: widest(b.Heard)}
}

// widest are the patterns that no other of them covers: of two that match, both would be sent what is published once.
func widest(patterns []string) []string {
	slices.Sort(patterns)
	patterns = slices.Compact(patterns)
	return slices.DeleteFunc(slices.Clone(patterns), func(s string) bool {
		return slices.ContainsFunc(patterns, func(in string) bool { return s != in && within(s, in) })
	})
}

func withinAny(s string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(in string) bool { return within(s, in) })
}
