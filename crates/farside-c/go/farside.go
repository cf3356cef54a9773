// Package farside is a key-value store, transactions and locks in memory that processes or machines share.
//
// It calls libfarside_c; docs/c.md says how to build that and how Go finds it. Everything but a [Transaction] may be used by any
// number of goroutines at the same time. Operations keep a session for each thread on which Go has run them.
package farside

/*
#cgo CFLAGS: -I${SRCDIR}/../include
#cgo LDFLAGS: -lfarside_c
#include <stdlib.h>
#include "farside.h"
*/
import "C"

import (
	"errors"
	"math"
	"runtime"
	"time"
	"unsafe"
)

// Status is what an operation answers if it does not succeed. Compare with [errors.Is].
type Status C.enum_farside_status

// The statuses; farside.h says what they mean.
const (
	ErrNotFound        Status = C.FARSIDE_NOT_FOUND
	ErrNotStored       Status = C.FARSIDE_NOT_STORED
	ErrConflict        Status = C.FARSIDE_CONFLICT
	ErrTimeout         Status = C.FARSIDE_TIMEOUT
	ErrOutOfMemory     Status = C.FARSIDE_OUT_OF_MEMORY
	ErrCutOff          Status = C.FARSIDE_CUT_OFF
	ErrLost            Status = C.FARSIDE_LOST
	ErrUnreachable     Status = C.FARSIDE_UNREACHABLE
	ErrInvalidArgument Status = C.FARSIDE_INVALID_ARGUMENT
	ErrForked          Status = C.FARSIDE_FORKED
	ErrInternal        Status = C.FARSIDE_INTERNAL
)

func (status Status) Error() string {
	names := map[Status]string{
		ErrNotFound: "not found", ErrNotStored: "not stored", ErrConflict: "conflict", ErrTimeout: "timeout",
		ErrOutOfMemory: "out of memory", ErrCutOff: "cut off", ErrLost: "lost", ErrUnreachable: "unreachable",
		ErrInvalidArgument: "invalid argument", ErrForked: "forked", ErrInternal: "internal",
	}
	return names[status]
}

// Error is a status with one line of text.
type Error struct {
	Status Status
	Text   string
}

func (err *Error) Error() string { return err.Text }

// Unwrap returns the status.
func (err *Error) Unwrap() error { return err.Status }

// call makes an error of what a function answers. The text is that of the thread, which must not change in between.
func call(function func() C.enum_farside_status) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	status := function()
	if status == C.FARSIDE_OK {
		return nil
	}
	return &Error{Status(status), C.GoString(C.farside_last_error())}
}

// bytesOf is where a slice begins, for the time of a call.
func bytesOf(slice []byte) (unsafe.Pointer, C.size_t) {
	if len(slice) == 0 {
		return nil, 0
	}
	return unsafe.Pointer(&slice[0]), C.size_t(len(slice))
}

// owned copies what the library has allocated, and frees it.
func owned(memory unsafe.Pointer, length C.size_t) []byte {
	defer C.farside_free(memory)
	return copied(memory, length)
}

func copied(memory unsafe.Pointer, length C.size_t) []byte {
	return append([]byte{}, unsafe.Slice((*byte)(memory), int(length))...)
}

// Options say where the memory is; farside.h explains them. Set Segment, Pool, or Bytes alone.
type Options struct {
	Segment    string
	Pool       string
	Bytes      uint64
	Index      string
	SecretFile string
	Timeout    time.Duration
	MemoryMax  uint64
	Eviction   string
	Owner      string
	LockLease  time.Duration
}

// with calls function with the options as C has them.
func (options Options) with(function func(*C.struct_farside_options) C.enum_farside_status) error {
	native := (*C.struct_farside_options)(C.calloc(1, C.sizeof_struct_farside_options))
	defer C.free(unsafe.Pointer(native))
	if err := call(func() C.enum_farside_status { return C.farside_options_init(native) }); err != nil {
		return err
	}
	text := func(place **C.char, value string) {
		if value != "" {
			*place = C.CString(value)
		}
	}
	text(&native.segment, options.Segment)
	text(&native.pool, options.Pool)
	text(&native.index, options.Index)
	text(&native.secret_file, options.SecretFile)
	text(&native.eviction, options.Eviction)
	text(&native.owner, options.Owner)
	native.bytes = C.uint64_t(options.Bytes)
	native.memory_max = C.uint64_t(options.MemoryMax)
	native.timeout_ms = milliseconds(options.Timeout)
	native.lock_lease_ms = milliseconds(options.LockLease)
	defer func() {
		for _, text := range []*C.char{
			native.segment, native.pool, native.index, native.secret_file, native.eviction, native.owner,
		} {
			C.free(unsafe.Pointer(text))
		}
	}()
	return call(func() C.enum_farside_status { return function(native) })
}

// milliseconds of a time, one at least if there is any.
func milliseconds(duration time.Duration) C.uint64_t {
	if duration <= 0 {
		return 0
	}
	return C.uint64_t((duration + time.Millisecond - 1) / time.Millisecond)
}

// Store is an open store.
type Store struct{ native *C.farside_store }

// Open opens a store, and makes it if the memory is new.
func Open(options Options) (*Store, error) {
	store := &Store{}
	err := options.with(func(native *C.struct_farside_options) C.enum_farside_status {
		var opened *C.farside_store
		status := C.farside_open(native, &opened)
		store.native = opened
		return status
	})
	if err != nil {
		return nil, err
	}
	return store, nil
}

// Close closes the store. Nobody may use it meanwhile or later.
func (store *Store) Close() error {
	native := store.native
	store.native = nil
	return call(func() C.enum_farside_status { return C.farside_close(native) })
}

// Get returns the value of a key, or ErrNotFound.
func (store *Store) Get(key []byte) ([]byte, error) {
	var memory unsafe.Pointer
	var length C.size_t
	data, bytes := bytesOf(key)
	err := call(func() C.enum_farside_status {
		return C.farside_get_alloc(store.native, data, bytes, &memory, &length)
	})
	if err != nil {
		return nil, err
	}
	return owned(memory, length), nil
}

// Set stores a value for good.
func (store *Store) Set(key, value []byte) error {
	keyData, keyBytes := bytesOf(key)
	data, bytes := bytesOf(value)
	return call(func() C.enum_farside_status {
		return C.farside_set(store.native, keyData, keyBytes, data, bytes)
	})
}

// SetFor stores a value that is gone after a time.
func (store *Store) SetFor(key, value []byte, ttl time.Duration) error {
	keyData, keyBytes := bytesOf(key)
	data, bytes := bytesOf(value)
	return call(func() C.enum_farside_status {
		return C.farside_set_with(store.native, keyData, keyBytes, data, bytes, 0, milliseconds(ttl))
	})
}

// SetIfAbsent stores a value for good if the key is not there, and answers ErrNotStored otherwise.
func (store *Store) SetIfAbsent(key, value []byte) error {
	keyData, keyBytes := bytesOf(key)
	data, bytes := bytesOf(value)
	return call(func() C.enum_farside_status {
		return C.farside_set_with(
			store.native, keyData, keyBytes, data, bytes, C.FARSIDE_IF_ABSENT, C.FARSIDE_FOREVER,
		)
	})
}

// Delete removes a key, or answers ErrNotFound.
func (store *Store) Delete(key []byte) error {
	data, bytes := bytesOf(key)
	return call(func() C.enum_farside_status { return C.farside_delete(store.native, data, bytes) })
}

// Increment adds to the decimal number that a key holds, 0 if it is not there, and returns the sum.
func (store *Store) Increment(key []byte, by int64) (int64, error) {
	var sum C.int64_t
	data, bytes := bytesOf(key)
	err := call(func() C.enum_farside_status {
		return C.farside_increment(store.native, data, bytes, C.int64_t(by), &sum)
	})
	return int64(sum), err
}

// GetMany returns the values of many keys in their order, nil where there is none. They are not one snapshot.
func (store *Store) GetMany(keys [][]byte) ([][]byte, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	total := 0
	for _, key := range keys {
		total += len(key)
	}
	// C gets no memory of Go in which there are pointers to more of it: the places of the keys, those of the values, and the keys
	// stand in memory of C.
	slices := C.size_t(C.sizeof_struct_farside_slice)
	count := C.size_t(len(keys))
	memory := C.malloc(2*count*slices + C.size_t(total))
	defer C.free(memory)
	places := unsafe.Slice((*C.struct_farside_slice)(memory), 2*len(keys))
	wanted, found := places[:len(keys)], places[len(keys):]
	next := unsafe.Add(memory, 2*count*slices)
	for index, key := range keys {
		copy(unsafe.Slice((*byte)(next), len(key)), key)
		wanted[index] = C.struct_farside_slice{next, C.size_t(len(key))}
		next = unsafe.Add(next, len(key))
	}
	var values unsafe.Pointer
	err := call(func() C.enum_farside_status {
		return C.farside_get_many(store.native, &wanted[0], count, &found[0], &values)
	})
	if err != nil {
		return nil, err
	}
	defer C.farside_free(values)
	result := make([][]byte, len(keys))
	for index, value := range found {
		if value.data != nil {
			result[index] = copied(value.data, value.length)
		}
	}
	return result, nil
}

// Scan visits all items until visit answers false, in the order of keys if the index has one. It is no snapshot.
func (store *Store) Scan(visit func(key, value []byte) bool) error {
	return store.walk(visit, func(iterator **C.farside_iterator) C.enum_farside_status {
		return C.farside_scan(store.native, iterator)
	})
}

// ScanRange visits the items from one key on until before another in order; nil is no bound. It needs an index with an order.
func (store *Store) ScanRange(from, to []byte, visit func(key, value []byte) bool) error {
	fromData, fromBytes := bytesOf(from)
	toData, toBytes := bytesOf(to)
	if to != nil && toData == nil {
		// Nothing comes before the empty key.
		return nil
	}
	return store.walk(visit, func(iterator **C.farside_iterator) C.enum_farside_status {
		return C.farside_scan_range(store.native, fromData, fromBytes, toData, toBytes, iterator)
	})
}

func (store *Store) walk(visit func(key, value []byte) bool, begin func(**C.farside_iterator) C.enum_farside_status) error {
	var iterator *C.farside_iterator
	if err := call(func() C.enum_farside_status { return begin(&iterator) }); err != nil {
		return err
	}
	defer C.farside_iterator_free(iterator)
	for {
		var key, value C.struct_farside_slice
		err := call(func() C.enum_farside_status { return C.farside_iterator_next(iterator, &key, &value) })
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if !visit(copied(key.data, key.length), copied(value.data, value.length)) {
			return nil
		}
	}
}

// forever is a wait without an end.
const forever = C.uint64_t(math.MaxUint64)
