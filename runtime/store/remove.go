package store

import (
	"context"
	"errors"

	"muster/wire"
)

// Remove marks a key as removed, at whatever revision it is; nothing happens if it holds nothing. With purge the revisions
// before go too, which is for secrets.
func Remove(ctx context.Context, log Log, key string, purge bool) error {
	for {
		rev, err := Read(ctx, log, key)
		if err != nil || rev.Absent() {
			return err
		}
		removed, err := RemoveAt(ctx, log, key, rev.Revision, purge)
		if err != nil || removed {
			return err
		}
	}
}

// RemoveAt is Remove for one revision only: false when the key holds another one, which stays.
func RemoveAt(ctx context.Context, log Log, key string, revision uint64, purge bool) (removed bool, err error) {
	header := map[string][]string{wire.HeaderKVOperation: {wire.KVDelete}}
	if purge {
		header = map[string][]string{wire.HeaderKVOperation: {wire.KVPurge}, wire.HeaderRollup: {wire.RollupSubject}}
	}
	err = insist(ctx, func(ctx context.Context) error {
		_, err := log.Write(ctx, []Entry{{Key: key, Header: header, Follows: revision}})
		return err
	})
	if _, lost := errors.AsType[*Conflict](err); !lost {
		return err == nil, err
	}
	rev, err := Read(ctx, log, key) // it may be gone, by a write of ours whose answer was lost
	return rev.Absent(), err
}

// Create stores a value under a key that holds nothing, and tells whether it did: false when something is there.
func Create(ctx context.Context, log Log, key string, value []byte) (bool, error) {
	for {
		rev, err := Read(ctx, log, key)
		if err != nil || !rev.Absent() {
			return false, err
		}
		err = insist(ctx, func(ctx context.Context) error {
			_, err := log.Write(ctx, []Entry{{Key: key, Value: value, Follows: rev.Revision}})
			return err
		})
		if err == nil {
			return true, nil
		}
		if _, lost := errors.AsType[*Conflict](err); !lost {
			return false, err
		}
	}
}
