package runtime

import (
	"slices"
	"strings"

	"muster/wire"
)

// CheckPage reads the body of a list: how many lines it asks for at most.
func CheckPage(p wire.Page) (limit int, err error) {
	if p.After != "" && !wire.ValidName(strings.ReplaceAll(p.After, ".", "")) {
		return 0, wire.CheckName("after", p.After)
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
