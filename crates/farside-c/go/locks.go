package farside

// #include "farside.h"
import "C"

import (
	"context"
	"errors"
	"time"
)

// patience is for how long one call waits for a lock of somebody who may be told to give up. It loses no place in the queue
// between two calls.
const patience = 50 * time.Millisecond

// Locks are named locks, in the memory of a store.
type Locks struct{ native *C.farside_locks }

// Lock is a lock that is held until it is released.
type Lock struct{ native *C.farside_lock }

// Locks opens the named locks in the memory of the store. They may be closed after it.
func (store *Store) Locks() (*Locks, error) {
	locks := &Locks{}
	err := call(func() C.enum_farside_status {
		var opened *C.farside_locks
		status := C.farside_locks_of(store.native, &opened)
		locks.native = opened
		return status
	})
	if err != nil {
		return nil, err
	}
	return locks, nil
}

// Close closes the locks. Those that are held stay so.
func (locks *Locks) Close() error {
	native := locks.native
	locks.native = nil
	return call(func() C.enum_farside_status { return C.farside_locks_close(native) })
}

// Lock acquires a lock that nobody else holds, and waits for it until the context is done.
func (locks *Locks) Lock(ctx context.Context, name string) (*Lock, error) {
	return locks.acquire(ctx, name, false)
}

// RLock acquires a lock together with other readers, and waits for it until the context is done.
func (locks *Locks) RLock(ctx context.Context, name string) (*Lock, error) {
	return locks.acquire(ctx, name, true)
}

func (locks *Locks) acquire(ctx context.Context, name string, isShared bool) (*Lock, error) {
	data, bytes := bytesOf([]byte(name))
	wait := milliseconds(patience)
	if ctx.Done() == nil {
		wait = forever
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var lock *C.farside_lock
		err := call(func() C.enum_farside_status {
			if isShared {
				return C.farside_lock_shared(locks.native, data, bytes, wait, &lock)
			}
			return C.farside_lock_exclusive(locks.native, data, bytes, wait, &lock)
		})
		if err == nil {
			return &Lock{lock}, nil
		}
		if !errors.Is(err, ErrTimeout) {
			return nil, err
		}
	}
}

// Token is the fencing token: larger than that of every grant before.
func (lock *Lock) Token() (uint64, error) {
	var token C.uint64_t
	err := call(func() C.enum_farside_status { return C.farside_lock_token(lock.native, &token) })
	return uint64(token), err
}

// Held answers nil if the lock is held and was all the time, ErrLost if somebody else may have it.
func (lock *Lock) Held() error {
	return call(func() C.enum_farside_status { return C.farside_lock_is_held(lock.native) })
}

// Release gives the lock back; it cannot be used any more.
func (lock *Lock) Release() error {
	native := lock.native
	lock.native = nil
	return call(func() C.enum_farside_status { return C.farside_lock_release(native) })
}
