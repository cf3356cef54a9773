/*
 * Farside for C: a key-value store, locks and transactions in memory that threads, processes or machines share.
 *
 * docs/c.md is the introduction. Written by `cargo xtask header`; do not edit it.
 *
 * Functions answer a status, but for three that cannot fail. Keys, values and names are bytes with a length; an empty one may be
 * NULL. A pointer that is passed has to be valid during the call, and no longer. Handles may be used by any thread unless it
 * says otherwise, but nobody may use one that is being closed, or was. In the child of a fork() no handle of the parent can be
 * used (FARSIDE_FORKED). Signal handlers call nothing of this.
 */

#ifndef FARSIDE_H
#define FARSIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * As a time to live: the key stays until it is deleted. As a timeout: wait for as long as it takes.
 */
#define FARSIDE_FOREVER UINT64_MAX

/**
 * For farside_set_with(): store only if the key is not there.
 */
#define FARSIDE_IF_ABSENT 1

/**
 * For farside_set_with(): store only if the key is there.
 */
#define FARSIDE_IF_PRESENT 2

/**
 * For farside_set_with(): the key keeps its time to live.
 */
#define FARSIDE_KEEP_TTL 4

/**
 * What a function answers. Of all but FARSIDE_OK, farside_last_error() knows more.
 */
typedef enum farside_status {
  /**
   * It is done.
   */
  FARSIDE_OK = 0,
  /**
   * There is no such key, no further item, no holder of the lock.
   */
  FARSIDE_NOT_FOUND = 1,
  /**
   * What it depends on is not so: the key is there already, is not there, or has another value. Nothing was changed.
   */
  FARSIDE_NOT_STORED = 2,
  /**
   * The value is longer than the buffer. Its length was stored, but not its bytes.
   */
  FARSIDE_BUFFER_TOO_SMALL = 3,
  /**
   * Others were quicker than the transaction. Nothing was changed: try it again, from its first read on.
   */
  FARSIDE_CONFLICT = 4,
  /**
   * Time was up. An operation on a key may have taken effect; a transaction has not, and a lock was not acquired.
   */
  FARSIDE_TIMEOUT = 5,
  /**
   * Memory is full. Nothing was changed; reads go on, and deleting or overwriting keys helps.
   */
  FARSIDE_OUT_OF_MEMORY = 6,
  /**
   * This client was cut off from the memory: a node went away, or the process stood still for longer than its lease. The
   * operation may have taken effect. The next one opens the memory again.
   */
  FARSIDE_CUT_OFF = 7,
  /**
   * The lock was not held to the end: this client was away for longer than its lease.
   */
  FARSIDE_LOST = 8,
  /**
   * The memory could not be opened where the options say.
   */
  FARSIDE_UNREACHABLE = 9,
  /**
   * An argument makes no sense. Nothing was changed.
   */
  FARSIDE_INVALID_ARGUMENT = 10,
  /**
   * The handle was made before fork(), and this is the child. Open the store again.
   */
  FARSIDE_FORKED = 11,
  /**
   * Anything else: the memory is damaged, has no room for another client, or the library has an error of its own.
   */
  FARSIDE_INTERNAL = 12,
} farside_status;

/**
 * A lock that is held. Any thread may use it, and release it.
 */
typedef struct farside_lock farside_lock;

/**
 * An iterator over items. One thread at a time may use it.
 */
typedef struct farside_iterator farside_iterator;

/**
 * Named locks. Any thread may use them, many at a time.
 */
typedef struct farside_locks farside_locks;

/**
 * An open store. Any thread may use it, many at a time.
 */
typedef struct farside_store farside_store;

/**
 * A transaction. It belongs to the thread that began it.
 */
typedef struct farside_transaction farside_transaction;

/**
 * Where the memory of a store is, and how it is used. farside_options_init() fills it in; then set what is wanted. Texts and
 * files are read by the function that opens the store, and not needed later.
 */
typedef struct farside_options {
  /**
   * The size of this struct, which farside_options_init() sets.
   */
  size_t size;
  /**
   * A segment file, which processes of this machine share; it is made with `bytes` bytes of memory if it is not there.
   */
  const char *segment;
  /**
   * Memory nodes: "tcp:HOST:PORT" for a `farside node`, "shm:PATH" for a segment file, "rdma:HOST:PORT"; several with commas
   * between them. Neither this nor `segment`: `bytes` bytes of memory of this process alone.
   */
  const char *pool;
  /**
   * How large new memory is.
   */
  uint64_t bytes;
  /**
   * The index of new memory: "race" (if NULL), or one that keeps keys in order, as "chime" does.
   */
  const char *index;
  /**
   * The file with the secret that memory nodes want to hear, or NULL.
   */
  const char *secret_file;
  /**
   * How long an operation may take, in milliseconds; 0: ten seconds over a connection, as long as it takes over mapped
   * memory.
   */
  uint64_t timeout_ms;
  /**
   * How many bytes keys and values may take, of all clients together; 0: all there is.
   */
  uint64_t memory_max;
  /**
   * Which keys go when memory is full: "noeviction" (if NULL), "allkeys-lru" and the others of Redis.
   */
  const char *eviction;
  /**
   * Who takes locks, for those who ask for the holder; if NULL, process and machine.
   */
  const char *owner;
  /**
   * How long a client may be silent before it can lose its locks, in milliseconds, the same for all clients; 0: one second.
   */
  uint64_t lock_lease_ms;
} farside_options;

/**
 * A piece of bytes.
 */
typedef struct farside_slice {
  /**
   * Where it begins. NULL if there is nothing, not even an empty piece.
   */
  const void *data;
  /**
   * How many bytes.
   */
  size_t length;
} farside_slice;

/**
 * Who holds a lock; it may have changed meanwhile.
 */
typedef struct farside_holder {
  /**
   * Who was granted it last, as its options have said, with a NUL behind it.
   */
  char owner[128];
  /**
   * When, in milliseconds since the Unix epoch.
   */
  uint64_t since_ms;
  /**
   * How many clients hold it or wait for it. Those of one farside_locks count as one.
   */
  uint64_t in_queue;
  /**
   * Whether it is held by readers.
   */
  bool is_shared;
} farside_holder;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * One line about the last call of this thread that did not answer FARSIDE_OK; empty if there was none. It stays until the
 * thread's next call of this library.
 */
const char *farside_last_error(void);

/**
 * Fills in options of which none is chosen.
 */
enum farside_status farside_options_init(struct farside_options *options);

/**
 * The version of the library, as "0.1.0".
 */
const char *farside_version(void);

/**
 * Opens a store; makes it if the memory is new. Starts a thread, which stands in for threads that do something else than use
 * it.
 */
enum farside_status farside_open(const struct farside_options *options,
                                 struct farside_store **store);

/**
 * Closes a store; its memory stays, unless it was that of this process alone. NULL is fine. No thread may use the store
 * meanwhile or later. What other threads hold of it they give up when they end, or call this library again.
 */
enum farside_status farside_close(struct farside_store *store);

/**
 * Copies the value of a key to `buffer`, if it has at most `capacity` bytes. `length` becomes its length, also if it is longer
 * (FARSIDE_BUFFER_TOO_SMALL).
 */
enum farside_status farside_get(const struct farside_store *store,
                                const void *key,
                                size_t key_length,
                                void *buffer,
                                size_t capacity,
                                size_t *length);

/**
 * The value of a key, in memory that farside_free() gives back.
 */
enum farside_status farside_get_alloc(const struct farside_store *store,
                                      const void *key,
                                      size_t key_length,
                                      void **value,
                                      size_t *length);

/**
 * Gives memory back that a function of this library has allocated. NULL is fine.
 */
void farside_free(void *memory);

/**
 * Stores a value for good, whatever was there.
 */
enum farside_status farside_set(const struct farside_store *store,
                                const void *key,
                                size_t key_length,
                                const void *value,
                                size_t value_length);

/**
 * Stores a value that is gone after `ttl_ms` milliseconds, or FARSIDE_FOREVER. `flags` is 0, or FARSIDE_IF_ABSENT or
 * FARSIDE_IF_PRESENT, which answer FARSIDE_NOT_STORED if it is not so, and with FARSIDE_KEEP_TTL `ttl_ms` does not count.
 */
enum farside_status farside_set_with(const struct farside_store *store,
                                     const void *key,
                                     size_t key_length,
                                     const void *value,
                                     size_t value_length,
                                     uint32_t flags,
                                     uint64_t ttl_ms);

/**
 * Removes a key.
 */
enum farside_status farside_delete(const struct farside_store *store, const void *key, size_t key_length);

/**
 * FARSIDE_OK if a key is there.
 */
enum farside_status farside_exists(const struct farside_store *store, const void *key, size_t key_length);

/**
 * Removes a key; the value it had is in memory that farside_free() gives back.
 */
enum farside_status farside_take(const struct farside_store *store,
                                 const void *key,
                                 size_t key_length,
                                 void **value,
                                 size_t *length);

/**
 * Changes how long a key stays: `ttl_ms` milliseconds from now, or FARSIDE_FOREVER.
 */
enum farside_status farside_expire(const struct farside_store *store,
                                   const void *key,
                                   size_t key_length,
                                   uint64_t ttl_ms);

/**
 * How many milliseconds a key still stays, or FARSIDE_FOREVER.
 */
enum farside_status farside_ttl(const struct farside_store *store,
                                const void *key,
                                size_t key_length,
                                uint64_t *ttl_ms);

/**
 * How many keys there are, expired ones that nobody has touched since included. Reads the whole index.
 */
enum farside_status farside_count(const struct farside_store *store, uint64_t *count);

/**
 * Removes every key.
 */
enum farside_status farside_clear(const struct farside_store *store);

/**
 * `held`: bytes that keys and values take, which `memory_max` limits. `used`: bytes in use or reserved by clients, tables
 * included. Either may be NULL.
 */
enum farside_status farside_memory(const struct farside_store *store,
                                   uint64_t *held,
                                   uint64_t *used);

/**
 * Adds to the number that a key holds as decimal digits, 0 if it is not there, atomically. When the key expires stays as it
 * is. The sum goes to `result`, which may be NULL.
 */
enum farside_status farside_increment(const struct farside_store *store,
                                      const void *key,
                                      size_t key_length,
                                      int64_t by,
                                      int64_t *result);

/**
 * Stores a value if the key has the value that is expected; FARSIDE_NOT_STORED if it has another one, FARSIDE_NOT_FOUND if
 * it is not there. When the key expires stays as it is.
 */
enum farside_status farside_compare_and_set(const struct farside_store *store,
                                            const void *key,
                                            size_t key_length,
                                            const void *expected,
                                            size_t expected_length,
                                            const void *value,
                                            size_t value_length);

/**
 * The values of `count` keys, in their order; they are not one snapshot. `values` has room for as many; `data` is NULL where
 * there is no such key. All stand in `memory`, which one call of farside_free() gives back.
 */
enum farside_status farside_get_many(const struct farside_store *store,
                                     const struct farside_slice *keys,
                                     size_t count,
                                     struct farside_slice *values,
                                     void **memory);

/**
 * Stores `count` values for good. Of several with one key the last one stays. After an error some of them are stored.
 */
enum farside_status farside_set_many(const struct farside_store *store,
                                     const struct farside_slice *keys,
                                     const struct farside_slice *values,
                                     size_t count);

/**
 * Removes `count` keys; `removed`, which may be NULL, becomes how many were there. After an error some of them are removed.
 */
enum farside_status farside_delete_many(const struct farside_store *store,
                                        const struct farside_slice *keys,
                                        size_t count,
                                        uint64_t *removed);

/**
 * An iterator over all items, in the order of keys if the index has one. It is no snapshot: an item that is there throughout
 * is seen once, another one at most once.
 */
enum farside_status farside_scan(const struct farside_store *store,
                                 struct farside_iterator **iterator);

/**
 * An iterator over the items from one key on until before another, in order; NULL means without a bound. The first item is
 * an error (FARSIDE_INVALID_ARGUMENT) if the index has no order.
 */
enum farside_status farside_scan_range(const struct farside_store *store,
                                       const void *from,
                                       size_t from_length,
                                       const void *to,
                                       size_t to_length,
                                       struct farside_iterator **iterator);

/**
 * The next item, FARSIDE_NOT_FOUND at the end. It stays where it is until the next call with this iterator. After another
 * error the next call tries again.
 */
enum farside_status farside_iterator_next(struct farside_iterator *iterator,
                                          struct farside_slice *key,
                                          struct farside_slice *value);

/**
 * Ends an iterator, at any point. NULL is fine.
 */
enum farside_status farside_iterator_free(struct farside_iterator *iterator);

/**
 * Begins a transaction. What it reads and changes nobody waits for; farside_transaction_commit() makes the changes if
 * everything that it has read is still so.
 */
enum farside_status farside_transaction_begin(const struct farside_store *store,
                                              struct farside_transaction **transaction);

/**
 * Like farside_get(), and sees what the transaction has changed.
 */
enum farside_status farside_transaction_get(const struct farside_transaction *transaction,
                                            const void *key,
                                            size_t key_length,
                                            void *buffer,
                                            size_t capacity,
                                            size_t *length);

/**
 * Like farside_set(), when the transaction is committed.
 */
enum farside_status farside_transaction_set(const struct farside_transaction *transaction,
                                            const void *key,
                                            size_t key_length,
                                            const void *value,
                                            size_t value_length);

/**
 * Like farside_delete(), when the transaction is committed.
 */
enum farside_status farside_transaction_delete(const struct farside_transaction *transaction,
                                               const void *key,
                                               size_t key_length);

/**
 * Makes the changes, all of them at one instant, at which everything that the transaction has read is still so.
 * FARSIDE_CONFLICT if it is not: nothing was changed, and the transaction can be tried again, from its first read on.
 * FARSIDE_TIMEOUT if that has been so for too long. Whatever it answers, the handle is a transaction that has read and
 * changed nothing afterwards.
 */
enum farside_status farside_transaction_commit(const struct farside_transaction *transaction);

/**
 * Forgets what the transaction has read and was to change.
 */
enum farside_status farside_transaction_rollback(const struct farside_transaction *transaction);

/**
 * Ends a transaction; what was not committed is not done. NULL is fine, and so is another thread.
 */
enum farside_status farside_transaction_free(struct farside_transaction *transaction);

/**
 * Opens the named locks in some memory; makes it ready if it is new. Starts a thread, which answers for the locks that are
 * held.
 */
enum farside_status farside_locks_open(const struct farside_options *options,
                                       struct farside_locks **locks);

/**
 * Opens the named locks in the memory of a store, with its options. The store may be closed before them.
 */
enum farside_status farside_locks_of(const struct farside_store *store, struct farside_locks **locks);

/**
 * Closes named locks. Those that are held stay so until they are released. NULL is fine.
 */
enum farside_status farside_locks_close(struct farside_locks *locks);

/**
 * Acquires a lock that nobody else holds. Its name has 1 to 128 bytes. Waits for `timeout_ms` milliseconds at most, not at
 * all if that is 0, and for as long as it takes if it is FARSIDE_FOREVER; FARSIDE_TIMEOUT if somebody still holds it.
 */
enum farside_status farside_lock_exclusive(const struct farside_locks *locks,
                                           const void *name,
                                           size_t name_length,
                                           uint64_t timeout_ms,
                                           struct farside_lock **lock);

/**
 * The same for a reader: others may hold the lock in this way at the same time.
 */
enum farside_status farside_lock_shared(const struct farside_locks *locks,
                                        const void *name,
                                        size_t name_length,
                                        uint64_t timeout_ms,
                                        struct farside_lock **lock);

/**
 * The fencing token of a lock: larger than that of every grant before. Send it along with what is done under the lock, and
 * have smaller ones refused there.
 */
enum farside_status farside_lock_token(const struct farside_lock *lock,
                                       uint64_t *token);

/**
 * FARSIDE_OK if the lock is held, and was all the time; FARSIDE_LOST if somebody else may have it.
 */
enum farside_status farside_lock_is_held(const struct farside_lock *lock);

/**
 * Gives a lock back, and frees the handle whatever it answers: FARSIDE_LOST if the lock may not have been held to the end.
 * NULL is fine.
 */
enum farside_status farside_lock_release(struct farside_lock *lock);

/**
 * Who holds a lock; FARSIDE_NOT_FOUND if nobody does. Of several readers, the last that came.
 */
enum farside_status farside_lock_holder(const struct farside_locks *locks,
                                        const void *name,
                                        size_t name_length,
                                        struct farside_holder *holder);

/**
 * Gives up what this thread holds in the stores that it has used: an entry in the table of clients and 16 KiB of memory for
 * each. The end of a thread does the same, so this is for threads that go on and do something else. The next operation begins
 * anew, which takes about a millisecond.
 */
enum farside_status farside_thread_leave(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FARSIDE_H */
