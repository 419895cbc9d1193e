package sled

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"muster/functions/join/quorum"
	"muster/wire"
)

// The files in a sled's directory. The lock keeps it to one process and ends with it, however it ends.
const (
	stateFile = "sled.json"
	newSuffix = ".new" // of a state being written; what a crash left of it means nothing
	lockFile  = "lock"
)

// store is a sled's directory.
type store struct {
	dir  string
	lock *os.File
}

// openStore opens a sled's directory, and makes it if it is absent, for the sled with that baseboard. A state that is
// there and cannot be read is an error, never a fresh start: its share may be the one that the rack needs.
func openStore(dir string, board wire.Baseboard, random io.Reader) (*store, *state, error) {
	if err := makeDir(dir); err != nil {
		return nil, nil, fmt.Errorf("make store: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("lock store %s: %w", dir, err)
	}
	st := &store{dir: dir, lock: lock}
	s, err := st.begin(board, random)
	if err != nil {
		return nil, nil, errors.Join(err, st.close())
	}
	return st, s, nil
}

func (st *store) begin(board wire.Baseboard, random io.Reader) (*state, error) {
	if err := os.Remove(filepath.Join(st.dir, stateFile+newSuffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove what a crash left: %w", err)
	}
	s, err := loadState(st.dir)
	if errors.Is(err, fs.ErrNotExist) {
		key, err := quorum.NewExchangeKey(random)
		if err != nil {
			return nil, err
		}
		s = newState(board, key)
		return s, st.save(s)
	}
	if err != nil {
		return nil, err
	}
	if s.board != board {
		return nil, fmt.Errorf("store %s is that of sled %v, not of %v", st.dir, s.board, board)
	}
	return s, nil
}

// loadState reads the state in a sled's directory. It may be read while its sled runs.
func loadState(dir string) (*state, error) {
	path := filepath.Join(dir, stateFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read sled's state: %w", err)
	}
	s, err := decodeState(data)
	if err != nil {
		return nil, fmt.Errorf("read sled's state %s: %w; it is left as it is: bring it back from a copy, or reset the rack and remove it", path, err)
	}
	return s, nil
}

// save makes s what the next start reads. When it returns, that holds through a loss of power; when it fails, the next
// start reads s or what was there before.
func (st *store) save(s *state) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write sled's state: %w", err)
		}
	}()
	data, err := encodeState(s)
	if err != nil {
		return err
	}
	path := filepath.Join(st.dir, stateFile)
	if err := writeSynced(path+newSuffix, data); err != nil {
		return err
	}
	if err := os.Rename(path+newSuffix, path); err != nil {
		return err
	}
	return syncDir(st.dir)
}

func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// makeDir makes a directory that is for its owner only, to stay.
func makeDir(dir string) error {
	_, err := os.Stat(dir)
	if absent := errors.Is(err, fs.ErrNotExist); err != nil && !absent {
		return err
	} else if absent {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if err := syncDir(filepath.Dir(filepath.Clean(dir))); err != nil {
			return err
		}
	}
	return os.Chmod(dir, 0o700)
}

func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = errors.New("another process uses it")
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// close gives the directory to others.
func (st *store) close() error { return st.lock.Close() }
