package farside

// #include "farside.h"
import "C"

import (
	"errors"
	"runtime"
	"unsafe"
)

// Transaction reads and changes keys; see [Store.Transaction]. It is for the goroutine in which body runs, and only as long as it does.
type Transaction struct{ native *C.farside_transaction }

// Transaction reads and changes keys as if nobody else were there: what body changes is changed at one instant, at which all that it has
// read is still so, or not at all. If others were quicker body runs again, so it should do nothing that cannot be done twice. An
// error of body is returned, and nothing is changed.
//
// A transaction belongs to a thread: body runs on one that does nothing else meanwhile.
func (store *Store) Transaction(body func(*Transaction) error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	transaction := &Transaction{}
	err := call(func() C.enum_farside_status {
		var begun *C.farside_transaction
		status := C.farside_transaction_begin(store.native, &begun)
		transaction.native = begun
		return status
	})
	if err != nil {
		return err
	}
	defer func() {
		C.farside_transaction_free(transaction.native)
		// Whoever has kept it is told that it is NULL.
		transaction.native = nil
	}()
	for {
		if err := body(transaction); err != nil {
			return err
		}
		err := call(func() C.enum_farside_status { return C.farside_transaction_commit(transaction.native) })
		if !errors.Is(err, ErrConflict) {
			return err
		}
	}
}

// Get returns the value of a key as the transaction has left it, or ErrNotFound.
func (transaction *Transaction) Get(key []byte) ([]byte, error) {
	data, bytes := bytesOf(key)
	buffer := make([]byte, 256)
	for {
		var length C.size_t
		room := C.size_t(len(buffer))
		err := call(func() C.enum_farside_status {
			return C.farside_transaction_get(
				transaction.native, data, bytes, unsafe.Pointer(&buffer[0]), room, &length,
			)
		})
		if errors.Is(err, Status(C.FARSIDE_BUFFER_TOO_SMALL)) {
			buffer = make([]byte, length)
			continue
		}
		if err != nil {
			return nil, err
		}
		return buffer[:length], nil
	}
}

// Set stores a value for good, when the transaction is committed.
func (transaction *Transaction) Set(key, value []byte) error {
	keyData, keyBytes := bytesOf(key)
	data, bytes := bytesOf(value)
	return call(func() C.enum_farside_status {
		return C.farside_transaction_set(transaction.native, keyData, keyBytes, data, bytes)
	})
}

// Delete removes a key, when the transaction is committed, or answers ErrNotFound.
func (transaction *Transaction) Delete(key []byte) error {
	data, bytes := bytesOf(key)
	return call(func() C.enum_farside_status {
		return C.farside_transaction_delete(transaction.native, data, bytes)
	})
}
