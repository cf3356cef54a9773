package farside

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

func open(t *testing.T, options Options) *Store {
	t.Helper()
	store, err := Open(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, store.Close()) })
	return store
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func is(t *testing.T, err error, wanted Status) {
	t.Helper()
	if !errors.Is(err, wanted) {
		t.Errorf("%v, not %v", err, wanted)
	}
}

func has(t *testing.T, store *Store, key, wanted string) {
	t.Helper()
	value, err := store.Get([]byte(key))
	if err != nil || string(value) != wanted {
		t.Errorf("%q has %q (%v), not %q", key, value, err, wanted)
	}
}

func TestOneKey(t *testing.T) {
	store := open(t, Options{Segment: filepath.Join(t.TempDir(), "segment"), Bytes: 64 << 20})
	_, err := store.Get([]byte("key"))
	is(t, err, ErrNotFound)
	must(t, store.Set([]byte("key"), []byte("value")))
	has(t, store, "key", "value")
	must(t, store.Set(nil, nil))
	has(t, store, "", "")
	is(t, store.SetIfAbsent([]byte("key"), []byte("other")), ErrNotStored)
	must(t, store.SetFor([]byte("key"), []byte("shortly"), time.Hour))
	has(t, store, "key", "shortly")
	must(t, store.Delete([]byte("key")))
	is(t, store.Delete([]byte("key")), ErrNotFound)
	is(t, store.SetFor([]byte("key"), nil, 0), ErrInvalidArgument)
	_, err = Open(Options{Pool: "nowhere"})
	is(t, err, ErrInvalidArgument)
	if err == nil || err.Error() == ErrInvalidArgument.Error() {
		t.Errorf("%v does not say what is wrong", err)
	}
}

func TestManyKeys(t *testing.T) {
	store := open(t, Options{Bytes: 64 << 20, Index: "chime"})
	keys := [][]byte{[]byte("absent"), {}}
	must(t, store.Set(nil, []byte("of the empty key")))
	for number := 0; number < 100; number++ {
		key := []byte(fmt.Sprintf("%03d", number))
		keys = append(keys, key)
		must(t, store.Set(key, key))
	}
	values, err := store.GetMany(keys)
	must(t, err)
	if values[0] != nil || string(values[1]) != "of the empty key" || string(values[101]) != "099" {
		t.Errorf("%q", values)
	}
	if values, err := store.GetMany(nil); values != nil || err != nil {
		t.Error(values, err)
	}
	seen := 0
	must(t, store.Scan(func(key, value []byte) bool { seen++; return true }))
	if seen != 101 {
		t.Errorf("%d items", seen)
	}
	next := 10
	must(t, store.ScanRange([]byte("010"), []byte("090"), func(key, value []byte) bool {
		if string(key) != fmt.Sprintf("%03d", next) || string(value) != string(key) {
			t.Errorf("%q: %q", key, value)
		}
		next++
		return next < 50
	}))
	if next != 50 {
		t.Errorf("stopped at %d", next)
	}
	must(t, store.ScanRange(nil, []byte{}, func(key, value []byte) bool {
		t.Errorf("%q is before everything", key)
		return true
	}))
	hashed := open(t, Options{Bytes: 64 << 20})
	is(t, hashed.ScanRange(nil, nil, func(key, value []byte) bool { return true }), ErrInvalidArgument)
}

// Goroutines move between threads; what they do does not depend on which one it is.
func TestGoroutines(t *testing.T) {
	const goroutines, rounds = 32, 20
	store := open(t, Options{Bytes: 64 << 20})
	locks, err := store.Locks()
	must(t, err)
	guarded := 0
	var group sync.WaitGroup
	for number := 0; number < goroutines; number++ {
		group.Add(1)
		go func(number int) {
			defer group.Done()
			for round := 0; round < rounds; round++ {
				key := []byte(fmt.Sprintf("%d.%d", number, round))
				must(t, store.Set(key, key))
				has(t, store, string(key), string(key))
				_, err := store.Get([]byte("absent"))
				is(t, err, ErrNotFound)
				must(t, store.Transaction(func(transaction *Transaction) error {
					for _, key := range []string{"left", "right"} {
						sum := 0
						value, err := transaction.Get([]byte(key))
						if err == nil {
							sum, err = strconv.Atoi(string(value))
						}
						if err != nil && !errors.Is(err, ErrNotFound) {
							return err
						}
						if err := transaction.Set([]byte(key), []byte(strconv.Itoa(sum+1))); err != nil {
							return err
						}
					}
					return nil
				}))
			}
			lock, err := locks.Lock(context.Background(), "turn")
			if err != nil {
				t.Error(err)
				return
			}
			guarded++
			must(t, lock.Held())
			must(t, lock.Release())
		}(number)
	}
	group.Wait()
	has(t, store, "left", strconv.Itoa(goroutines*rounds))
	has(t, store, "right", strconv.Itoa(goroutines*rounds))
	if guarded != goroutines {
		t.Errorf("%d of %d had a turn", guarded, goroutines)
	}
	must(t, locks.Close())
}

func TestTransactions(t *testing.T) {
	store := open(t, Options{Bytes: 64 << 20})
	refusal := errors.New("not like this")
	long := make([]byte, 1000)
	must(t, store.Set([]byte("long"), long))
	var kept *Transaction
	err := store.Transaction(func(transaction *Transaction) error {
		kept = transaction
		must(t, transaction.Set([]byte("key"), []byte("value")))
		value, err := transaction.Get([]byte("long"))
		if err != nil || len(value) != len(long) {
			t.Error(len(value), err)
		}
		// Another goroutine is on another thread.
		elsewhere := make(chan error)
		go func() { elsewhere <- transaction.Set([]byte("key"), nil) }()
		is(t, <-elsewhere, ErrInvalidArgument)
		must(t, transaction.Delete([]byte("long")))
		is(t, transaction.Delete([]byte("long")), ErrNotFound)
		return refusal
	})
	if err != refusal {
		t.Error(err)
	}
	_, err = store.Get([]byte("key"))
	is(t, err, ErrNotFound)
	is(t, kept.Set([]byte("key"), nil), ErrInvalidArgument)
	// Whoever is quicker makes it run again.
	runs := 0
	must(t, store.Transaction(func(transaction *Transaction) error {
		runs++
		if _, err := transaction.Get([]byte("long")); err != nil {
			return err
		}
		if runs == 1 {
			must(t, store.Set([]byte("long"), nil))
		}
		return transaction.Set([]byte("runs"), []byte(strconv.Itoa(runs)))
	}))
	has(t, store, "runs", "2")
}

func TestLocks(t *testing.T) {
	store := open(t, Options{Bytes: 64 << 20})
	locks, err := store.Locks()
	must(t, err)
	first, err := locks.Lock(context.Background(), "door")
	must(t, err)
	// Somebody gives up.
	ctx, cancel := context.WithCancel(context.Background())
	gaveUp := make(chan error)
	go func() {
		_, err := locks.Lock(ctx, "door")
		gaveUp <- err
	}()
	cancel()
	if err := <-gaveUp; err != context.Canceled {
		t.Error(err)
	}
	ctx, cancel = context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if _, err := locks.RLock(ctx, "door"); err != context.DeadlineExceeded {
		t.Error(err)
	}
	before, err := first.Token()
	must(t, err)
	must(t, first.Release())
	reader, err := locks.RLock(context.Background(), "door")
	must(t, err)
	other, err := locks.RLock(context.Background(), "door")
	must(t, err)
	if token, err := other.Token(); err != nil || token <= before {
		t.Error(token, err)
	}
	must(t, reader.Release())
	must(t, other.Release())
	is(t, other.Held(), ErrInvalidArgument)
	must(t, locks.Close())
}
