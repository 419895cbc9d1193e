package wire

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// TriggerID is the request id of a trigger: what its event's source and id make together, in the alphabet of request ids.
func TriggerID(source, id string) string {
	sum := sha256.Sum256([]byte(source + "\x00" + id))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// TriggerMemoKey is [MemoKey] for a trigger. No caller's id has an equals sign in it, so that the two never meet.
func TriggerMemoKey(op string, ids []string, triggerID string) string {
	return memoKeys + strings.Join(append(append([]string{op}, ids...), "="+triggerID), ".")
}
