package runtime

import (
	"fmt"
	"slices"
	"strings"

	"muster/wire"
)

// CheckPage reads the body of a list of keys that are so many names: how many lines it asks for at most.
func CheckPage(p wire.Page, names int) (limit int, err error) {
	if p.After != "" {
		parts := strings.Split(p.After, ".")
		if len(parts) != names || slices.ContainsFunc(parts, func(s string) bool { return !wire.ValidName(s) }) {
			what := "a name that matches "
			if names > 1 {
				what = fmt.Sprintf("%d names with dots between them, each matching ", names)
			}
			return 0, wire.Invalid("after", "after must be what next was: %s%s", what, wire.NamePattern)
		}
	}
	switch {
	case p.Limit == 0:
		return wire.PageDefault, nil
	case p.Limit < 0 || p.Limit > wire.PageMax:
		return 0, wire.Invalid("limit", "limit must be 1 to %d", wire.PageMax)
	}
	return p.Limit, nil
}

// CutPage cuts the page behind after out of sorted keys, and tells what the next one comes after; "" for the last.
func CutPage(keys []string, after string, limit int) (now []string, next string) {
	from, found := slices.BinarySearchFunc(keys, after, strings.Compare)
	if found {
		from++
	}
	keys = keys[from:]
	if len(keys) <= limit {
		return keys, ""
	}
	return keys[:limit], keys[limit-1]
}
