/*
 * What farside.h promises, over memory of the process, a segment file and, if a third argument names it, a memory node.
 *
 *     suite FOLDER [tcp:HOST:PORT]
 *
 * The folder is made anew by whoever starts it. Prints a line for each test; ends with the first check that fails.
 */
#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__has_include)
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#endif
#endif

#include "farside.h"

#define THREADS 4
/* Each client that has written something leaves 64 KiB behind, of which others use what it has not. */
#define FOR_MANY_CLIENTS (256 << 20)

/* How often threads and processes do something; valgrind takes its time. */
static int rounds = 200;

#define CHECK(condition)                                                                                       \
  do {                                                                                                         \
    if (!(condition)) {                                                                                        \
      fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", __FILE__, __LINE__, #condition, farside_last_error()); \
      _exit(1);                                                                                                \
    }                                                                                                          \
  } while (0)
#define OK(call) CHECK((call) == FARSIDE_OK)
#define IS(status, call) CHECK((call) == (status))
/* A text as a pointer and a length. */
#define T(text) (text), strlen(text)

static const char *folder;

static farside_options in_memory(void) {
  farside_options options;
  OK(farside_options_init(&options));
  options.bytes = 64 << 20;
  return options;
}

static farside_store *opened(const farside_options *options) {
  farside_store *store = NULL;
  OK(farside_open(options, &store));
  CHECK(store != NULL);
  return store;
}

/* The path of a segment; one at a time. */
static const char *segment(const char *name) {
  static char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static void has(farside_store *store, const char *key, const char *value) {
  char buffer[64];
  size_t length = 0;
  OK(farside_get(store, T(key), buffer, sizeof buffer, &length));
  CHECK(length == strlen(value) && memcmp(buffer, value, length) == 0);
}

static void lacks(farside_store *store, const char *key) {
  char buffer[1];
  size_t length = 0;
  IS(FARSIDE_NOT_FOUND, farside_get(store, T(key), buffer, sizeof buffer, &length));
}

static void one_key(void) {
  farside_options options = in_memory();
  farside_store *store = opened(&options);
  char buffer[4];
  size_t length = 0;
  void *value = NULL;
  uint64_t number = 0, used = 0;
  int64_t sum = 0;

  lacks(store, "key");
  IS(FARSIDE_NOT_FOUND, farside_exists(store, T("key")));
  OK(farside_set(store, T("key"), T("value")));
  OK(farside_exists(store, T("key")));
  has(store, "key", "value");
  memset(buffer, '.', sizeof buffer);
  IS(FARSIDE_BUFFER_TOO_SMALL, farside_get(store, T("key"), buffer, sizeof buffer, &length));
  CHECK(length == 5 && memcmp(buffer, "....", 4) == 0);
  IS(FARSIDE_BUFFER_TOO_SMALL, farside_get(store, T("key"), NULL, 0, &length));
  OK(farside_get_alloc(store, T("key"), &value, &length));
  CHECK(length == 5 && memcmp(value, "value", 5) == 0);
  farside_free(value);
  OK(farside_take(store, T("key"), &value, &length));
  CHECK(length == 5 && memcmp(value, "value", 5) == 0);
  farside_free(value);
  lacks(store, "key");
  IS(FARSIDE_NOT_FOUND, farside_take(store, T("key"), &value, &length));
  IS(FARSIDE_NOT_FOUND, farside_delete(store, T("key")));

  /* Keys and values are bytes, and may be empty. */
  OK(farside_set(store, NULL, 0, "a\0b", 3));
  OK(farside_get(store, "", 0, buffer, sizeof buffer, &length));
  CHECK(length == 3 && memcmp(buffer, "a\0b", 3) == 0);
  OK(farside_set(store, NULL, 0, NULL, 0));
  OK(farside_get_alloc(store, NULL, 0, &value, &length));
  CHECK(length == 0 && value != NULL);
  farside_free(value);

  OK(farside_set_with(store, T("lease"), T("1"), FARSIDE_IF_ABSENT, 60000));
  IS(FARSIDE_NOT_STORED, farside_set_with(store, T("lease"), T("2"), FARSIDE_IF_ABSENT, FARSIDE_FOREVER));
  IS(FARSIDE_NOT_STORED, farside_set_with(store, T("other"), T("2"), FARSIDE_IF_PRESENT, FARSIDE_FOREVER));
  OK(farside_ttl(store, T("lease"), &number));
  CHECK(number > 0 && number <= 60000);
  OK(farside_set_with(store, T("lease"), T("3"), FARSIDE_IF_PRESENT | FARSIDE_KEEP_TTL, 0));
  OK(farside_ttl(store, T("lease"), &number));
  CHECK(number > 0 && number <= 60000);
  OK(farside_expire(store, T("lease"), FARSIDE_FOREVER));
  OK(farside_ttl(store, T("lease"), &number));
  CHECK(number == FARSIDE_FOREVER);
  IS(FARSIDE_NOT_FOUND, farside_ttl(store, T("other"), &number));
  IS(FARSIDE_NOT_FOUND, farside_expire(store, T("other"), 1));

  OK(farside_increment(store, T("count"), 40, NULL));
  OK(farside_increment(store, T("count"), 2, &sum));
  CHECK(sum == 42);
  has(store, "count", "42");
  IS(FARSIDE_INVALID_ARGUMENT, farside_increment(store, T("count"), INT64_MAX, &sum));
  OK(farside_set(store, T("word"), T("many")));
  IS(FARSIDE_INVALID_ARGUMENT, farside_increment(store, T("word"), 1, &sum));
  OK(farside_compare_and_set(store, T("word"), T("many"), T("few")));
  IS(FARSIDE_NOT_STORED, farside_compare_and_set(store, T("word"), T("many"), T("none")));
  IS(FARSIDE_NOT_FOUND, farside_compare_and_set(store, T("nobody"), T("many"), T("none")));
  has(store, "word", "few");

  OK(farside_memory(store, &number, &used));
  CHECK(number > 0 && used > number);
  OK(farside_count(store, &number));
  CHECK(number == 4);
  OK(farside_clear(store));
  OK(farside_count(store, &number));
  CHECK(number == 0);
  OK(farside_close(store));
}

static void many_keys(void) {
  enum { COUNT = 100 };
  farside_options options = in_memory();
  char texts[COUNT + 1][8];
  farside_slice keys[COUNT + 1], values[COUNT + 1], key, value;
  farside_iterator *iterator = NULL;
  void *memory = NULL;
  uint64_t removed = 0;
  int seen = 0;
  options.index = "chime";
  farside_store *store = opened(&options);

  for (int index = 0; index <= COUNT; index++) {
    snprintf(texts[index], sizeof texts[index], "key%03d", index);
    keys[index].data = texts[index];
    keys[index].length = strlen(texts[index]);
  }
  OK(farside_set_many(store, keys, keys, COUNT));
  OK(farside_set(store, T("empty"), NULL, 0));
  keys[0].data = "empty";
  keys[0].length = 5;
  OK(farside_get_many(store, keys, COUNT + 1, values, &memory));
  CHECK(values[0].length == 0 && values[0].data != NULL);
  for (int index = 1; index < COUNT; index++) {
    CHECK(values[index].length == keys[index].length);
    CHECK(memcmp(values[index].data, keys[index].data, keys[index].length) == 0);
  }
  CHECK(values[COUNT].data == NULL && values[COUNT].length == 0);
  farside_free(memory);
  OK(farside_get_many(store, NULL, 0, NULL, &memory));
  farside_free(memory);

  OK(farside_scan(store, &iterator));
  while (farside_iterator_next(iterator, &key, &value) == FARSIDE_OK) {
    seen++;
  }
  IS(FARSIDE_NOT_FOUND, farside_iterator_next(iterator, &key, &value));
  OK(farside_iterator_free(iterator));
  CHECK(seen == COUNT + 1);
  OK(farside_scan_range(store, T("key010"), T("key090"), &iterator));
  for (seen = 10; seen < 90; seen++) {
    OK(farside_iterator_next(iterator, &key, &value));
    CHECK(key.length == 6 && memcmp(key.data, texts[seen], 6) == 0);
    CHECK(value.length == 6 && memcmp(value.data, texts[seen], 6) == 0);
  }
  IS(FARSIDE_NOT_FOUND, farside_iterator_next(iterator, &key, &value));
  OK(farside_iterator_free(iterator));
  OK(farside_scan_range(store, T("key098"), NULL, 0, &iterator));
  OK(farside_iterator_next(iterator, &key, &value));
  OK(farside_iterator_next(iterator, &key, &value));
  IS(FARSIDE_NOT_FOUND, farside_iterator_next(iterator, &key, &value));
  OK(farside_iterator_free(iterator));

  OK(farside_delete_many(store, keys, COUNT + 1, &removed));
  CHECK(removed == COUNT);
  OK(farside_close(store));
}

/* The last call said this status, and a text in one line that has this word in it. */
static void said(farside_status expected, farside_status status, const char *word) {
  const char *text = farside_last_error();
  CHECK(status == expected);
  CHECK(strstr(text, word) != NULL && strchr(text, '\n') == NULL);
}

static void errors(void) {
  farside_options options = in_memory();
  farside_store *store = opened(&options), *other = NULL;
  farside_iterator *iterator = NULL;
  farside_slice key, value, missing = {NULL, 1};
  char *large = calloc(1, 1 << 20);
  size_t length = 0;
  farside_status status = FARSIDE_OK;
  uint64_t number = 0;

  said(FARSIDE_INVALID_ARGUMENT, farside_set(NULL, T("key"), T("value")), "`store` is NULL");
  said(FARSIDE_INVALID_ARGUMENT, farside_set(store, NULL, 1, T("value")), "`key` is NULL");
  said(FARSIDE_INVALID_ARGUMENT, farside_set(store, T("key"), "", SIZE_MAX), "`value`");
  said(FARSIDE_INVALID_ARGUMENT, farside_get(store, T("key"), NULL, 0, NULL), "`length` is NULL");
  said(FARSIDE_INVALID_ARGUMENT, farside_set(store, large, 1 << 20, T("value")), "at most");
  said(FARSIDE_INVALID_ARGUMENT, farside_set_with(store, T("key"), T("value"), 3, 1), "FARSIDE_IF_ABSENT");
  said(FARSIDE_INVALID_ARGUMENT, farside_set_with(store, T("key"), T("value"), 0, 0), "FARSIDE_FOREVER");
  said(FARSIDE_INVALID_ARGUMENT, farside_delete_many(store, &missing, 1, NULL), "`keys` is NULL");
  said(FARSIDE_NOT_FOUND, farside_delete(store, T("key")), "no such key");
  OK(farside_scan_range(store, T("a"), T("b"), &iterator));
  said(FARSIDE_INVALID_ARGUMENT, farside_iterator_next(iterator, &key, &value), "order");
  OK(farside_iterator_free(iterator));

  memset(&options, 0, sizeof options);
  said(FARSIDE_INVALID_ARGUMENT, farside_open(&options, &other), "farside_options_init()");
  OK(farside_options_init(&options));
  said(FARSIDE_INVALID_ARGUMENT, farside_open(&options, &other), "where is the memory");
  options.pool = "nowhere";
  said(FARSIDE_INVALID_ARGUMENT, farside_open(&options, &other), "tcp:HOST:PORT");
  options.pool = "tcp:127.0.0.1:1";
  said(FARSIDE_UNREACHABLE, farside_open(&options, &other), "127.0.0.1:1");
  options = in_memory();
  options.index = "heap";
  said(FARSIDE_INVALID_ARGUMENT, farside_open(&options, &other), "race");
  options.index = "\xff";
  said(FARSIDE_INVALID_ARGUMENT, farside_open(&options, &other), "UTF-8");
  options = in_memory();
  options.eviction = "mru";
  said(FARSIDE_INVALID_ARGUMENT, farside_open(&options, &other), "allkeys-lru");
  options = in_memory();
  options.secret_file = segment("absent");
  said(FARSIDE_INVALID_ARGUMENT, farside_open(&options, &other), "absent");
  CHECK(other == NULL);

  /* Full memory changes nothing, and deleting helps. */
  for (number = 0; status == FARSIDE_OK; number++) {
    status = farside_set(store, &number, sizeof number, large, 1 << 20);
  }
  said(FARSIDE_OUT_OF_MEMORY, status, "out of memory");
  CHECK(number > 8);
  number = 0;
  OK(farside_get(store, &number, sizeof number, large, 1 << 20, &length));
  OK(farside_clear(store));
  free(large);
  OK(farside_close(store));

  /* Nothing to close is fine. */
  OK(farside_close(NULL));
  OK(farside_iterator_free(NULL));
  OK(farside_transaction_free(NULL));
  OK(farside_locks_close(NULL));
  OK(farside_lock_release(NULL));
  farside_free(NULL);
  CHECK(strlen(farside_version()) > 0);
}

/* Adds to two keys in one transaction; returns how often others were quicker. */
static int add_to_both(farside_store *store) {
  farside_transaction *transaction = NULL;
  farside_status status = FARSIDE_CONFLICT;
  char buffer[32];
  size_t length = 0;
  int conflicts = -1;
  OK(farside_transaction_begin(store, &transaction));
  while (status == FARSIDE_CONFLICT) {
    conflicts++;
    for (int index = 0; index < 2; index++) {
      const char *key = index == 0 ? "left" : "right";
      long number = 0;
      status = farside_transaction_get(transaction, T(key), buffer, sizeof buffer - 1, &length);
      CHECK(status == FARSIDE_OK || status == FARSIDE_NOT_FOUND);
      if (status == FARSIDE_OK) {
        buffer[length] = 0;
        number = strtol(buffer, NULL, 10);
      }
      snprintf(buffer, sizeof buffer, "%ld", number + 1);
      OK(farside_transaction_set(transaction, T(key), T(buffer)));
    }
    status = farside_transaction_commit(transaction);
  }
  CHECK(status == FARSIDE_OK);
  OK(farside_transaction_free(transaction));
  return conflicts;
}

static void *use_from_elsewhere(void *argument) {
  farside_transaction *transaction = argument;
  char buffer[8];
  size_t length = 0;
  said(FARSIDE_INVALID_ARGUMENT, farside_transaction_get(transaction, T("left"), buffer, sizeof buffer, &length), "thread");
  said(FARSIDE_INVALID_ARGUMENT, farside_transaction_set(transaction, T("left"), T("x")), "thread");
  said(FARSIDE_INVALID_ARGUMENT, farside_transaction_commit(transaction), "thread");
  said(FARSIDE_INVALID_ARGUMENT, farside_transaction_rollback(transaction), "thread");
  return NULL;
}

static void transactions(void) {
  farside_options options = in_memory();
  farside_store *store = opened(&options);
  farside_transaction *transaction = NULL;
  char buffer[8];
  size_t length = 0;
  pthread_t thread;

  CHECK(add_to_both(store) == 0);
  has(store, "left", "1");
  has(store, "right", "1");

  /* It sees what it has done, nobody else does; what is rolled back was never there. */
  OK(farside_transaction_begin(store, &transaction));
  OK(farside_transaction_set(transaction, T("left"), T("7")));
  OK(farside_transaction_get(transaction, T("left"), buffer, sizeof buffer, &length));
  CHECK(length == 1 && buffer[0] == '7');
  IS(FARSIDE_BUFFER_TOO_SMALL, farside_transaction_get(transaction, T("left"), buffer, 0, &length));
  OK(farside_transaction_delete(transaction, T("right")));
  IS(FARSIDE_NOT_FOUND, farside_transaction_get(transaction, T("right"), buffer, sizeof buffer, &length));
  IS(FARSIDE_NOT_FOUND, farside_transaction_delete(transaction, T("right")));
  has(store, "left", "1");
  OK(farside_transaction_rollback(transaction));
  OK(farside_transaction_commit(transaction));
  has(store, "left", "1");
  has(store, "right", "1");

  /* Somebody is quicker: nothing is changed, and the next attempt sees what is there now. */
  OK(farside_transaction_get(transaction, T("left"), buffer, sizeof buffer, &length));
  OK(farside_transaction_set(transaction, T("right"), T("9")));
  OK(farside_set(store, T("left"), T("2")));
  said(FARSIDE_CONFLICT, farside_transaction_commit(transaction), "try it again");
  has(store, "right", "1");
  OK(farside_transaction_get(transaction, T("left"), buffer, sizeof buffer, &length));
  CHECK(length == 1 && buffer[0] == '2');
  OK(farside_transaction_set(transaction, T("right"), T("2")));
  OK(farside_transaction_commit(transaction));
  has(store, "right", "2");

  /* After its end it is another transaction, which repeats nothing. */
  OK(farside_set(store, T("right"), T("3")));
  OK(farside_transaction_commit(transaction));
  has(store, "right", "3");

  /* Another thread can do no harm with it, but end it. */
  OK(farside_transaction_set(transaction, T("left"), T("8")));
  CHECK(pthread_create(&thread, NULL, use_from_elsewhere, transaction) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  OK(farside_transaction_commit(transaction));
  has(store, "left", "8");
  OK(farside_transaction_free(transaction));
  OK(farside_close(store));
}

struct job {
  farside_store *store;
  farside_locks *locks;
  pthread_barrier_t *gate;
  int number;
};

static void *work(void *argument) {
  const struct job *job = argument;
  char key[32];
  pthread_barrier_wait(job->gate);
  for (int round = 0; round < rounds; round++) {
    snprintf(key, sizeof key, "%d.%d", job->number, round);
    OK(farside_set(job->store, T(key), T(key)));
    has(job->store, key, key);
    OK(farside_increment(job->store, T("sum"), 1, NULL));
    if (round % 16 == 0) {
      add_to_both(job->store);
      /* Joins anew with the next operation. */
      OK(farside_thread_leave());
    }
  }
  if (job->locks != NULL) {
    /* What is not atomic, under a lock. */
    farside_lock *lock = NULL;
    char text[32] = "0";
    size_t length = 0;
    OK(farside_lock_exclusive(job->locks, T("turn"), FARSIDE_FOREVER, &lock));
    farside_status status = farside_get(job->store, T("guarded"), text, sizeof text - 1, &length);
    CHECK(status == FARSIDE_OK || status == FARSIDE_NOT_FOUND);
    text[status == FARSIDE_OK ? length : 1] = 0;
    snprintf(text, sizeof text, "%ld", strtol(text, NULL, 10) + 1);
    OK(farside_set(job->store, T("guarded"), T(text)));
    OK(farside_lock_release(lock));
  }
  return NULL;
}

/* Threads come, work at the same time and end, twice. */
static void threads_on(farside_store *store, farside_locks *locks) {
  pthread_t threads[THREADS];
  struct job jobs[THREADS];
  pthread_barrier_t gate;
  char expected[32];
  CHECK(pthread_barrier_init(&gate, NULL, THREADS) == 0);
  for (int turn = 0; turn < 2; turn++) {
    for (int index = 0; index < THREADS; index++) {
      jobs[index] = (struct job){store, locks, &gate, index};
      CHECK(pthread_create(&threads[index], NULL, work, &jobs[index]) == 0);
    }
    for (int index = 0; index < THREADS; index++) {
      CHECK(pthread_join(threads[index], NULL) == 0);
    }
  }
  CHECK(pthread_barrier_destroy(&gate) == 0);
  snprintf(expected, sizeof expected, "%d", 2 * THREADS * rounds);
  has(store, "sum", expected);
  snprintf(expected, sizeof expected, "%d", 2 * THREADS * ((rounds + 15) / 16));
  has(store, "left", expected);
  has(store, "right", expected);
  if (locks != NULL) {
    snprintf(expected, sizeof expected, "%d", 2 * THREADS);
    has(store, "guarded", expected);
  }
}

/* Two stores, in the order in which a thread uses them first. */
struct both {
  farside_store *first, *second;
};

static void *use_both(void *argument) {
  const struct both *both = argument;
  OK(farside_set(both->first, T("from a thread"), T("it")));
  OK(farside_set(both->second, T("from a thread"), T("it")));
  return NULL;
}

/* More threads than a memory has room for clients, of which few are there at a time: each leaves when it ends. */
static void threads_that_end(farside_store *first, farside_store *second) {
  enum { AT_ONCE = 16, CLIENTS_MAX = 1024 };
  struct both both = {first, second};
  pthread_t threads[AT_ONCE];
  int count = rounds < 200 ? AT_ONCE : CLIENTS_MAX + AT_ONCE;
  for (int begun = 0; begun < count; begun += AT_ONCE) {
    for (int index = 0; index < AT_ONCE; index++) {
      CHECK(pthread_create(&threads[index], NULL, use_both, &both) == 0);
    }
    for (int index = 0; index < AT_ONCE; index++) {
      CHECK(pthread_join(threads[index], NULL) == 0);
    }
  }
}

static void threads(void) {
  farside_options options = in_memory();
  options.bytes = FOR_MANY_CLIENTS;
  farside_store *store = opened(&options), *second = opened(&options);
  farside_locks *locks = NULL;
  OK(farside_locks_of(store, &locks));
  threads_on(store, locks);
  threads_on(second, NULL);
  OK(farside_close(second));
  threads_that_end(store, store);
  OK(farside_locks_close(locks));
  OK(farside_close(store));
}

static void named_locks(void) {
  farside_options options = in_memory();
  farside_store *store = NULL;
  farside_locks *locks = NULL;
  farside_lock *first = NULL, *second = NULL;
  farside_holder holder;
  uint64_t before = 0, token = 0;
  char name[129];
  options.owner = "the suite";
  store = opened(&options);
  OK(farside_locks_of(store, &locks));
  OK(farside_close(store));

  IS(FARSIDE_NOT_FOUND, farside_lock_holder(locks, T("door"), &holder));
  OK(farside_lock_exclusive(locks, T("door"), 0, &first));
  OK(farside_lock_is_held(first));
  OK(farside_lock_token(first, &before));
  OK(farside_lock_holder(locks, T("door"), &holder));
  CHECK(strcmp(holder.owner, "the suite") == 0 && holder.since_ms > 0 && !holder.is_shared);
  said(FARSIDE_TIMEOUT, farside_lock_exclusive(locks, T("door"), 0, &second), "somebody else");
  IS(FARSIDE_TIMEOUT, farside_lock_shared(locks, T("door"), 1, &second));
  OK(farside_lock_release(first));
  OK(farside_lock_shared(locks, T("door"), 60000, &first));
  OK(farside_lock_shared(locks, T("door"), FARSIDE_FOREVER, &second));
  OK(farside_lock_token(second, &token));
  CHECK(token > before);
  OK(farside_lock_release(first));
  OK(farside_lock_release(second));
  memset(name, 'n', sizeof name);
  IS(FARSIDE_INVALID_ARGUMENT, farside_lock_exclusive(locks, name, sizeof name, 0, &first));
  IS(FARSIDE_INVALID_ARGUMENT, farside_lock_exclusive(locks, NULL, 0, 0, &first));
  /* A lock outlives its locks. */
  OK(farside_lock_exclusive(locks, T("door"), FARSIDE_FOREVER, &first));
  OK(farside_locks_close(locks));
  OK(farside_lock_is_held(first));
  OK(farside_lock_release(first));
}

/* A process of its own; 0 in the child. What the stacks of its parent's other threads have held is lost there, and no leak. */
static pid_t forked(void) {
  pid_t child = fork();
  CHECK(child >= 0);
#if defined(VALGRIND_CLO_CHANGE)
  if (child == 0) {
    VALGRIND_CLO_CHANGE("--leak-check=no");
  }
#endif
  return child;
}

static void ended_well(pid_t child) {
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Processes share a segment: each adds to the same keys. */
static void processes(void) {
  enum { PROCESSES = 3 };
  pid_t children[PROCESSES];
  farside_options options;
  OK(farside_options_init(&options));
  options.segment = segment("shared");
  options.bytes = 64 << 20;
  for (int index = 0; index < PROCESSES; index++) {
    children[index] = forked();
    if (children[index] == 0) {
      farside_store *store = opened(&options);
      for (int round = 0; round < rounds; round++) {
        OK(farside_increment(store, T("sum"), 1, NULL));
        add_to_both(store);
      }
      OK(farside_close(store));
      exit(0);
    }
  }
  for (int index = 0; index < PROCESSES; index++) {
    ended_well(children[index]);
  }
  farside_store *store = opened(&options);
  char expected[32];
  snprintf(expected, sizeof expected, "%d", PROCESSES * rounds);
  has(store, "sum", expected);
  has(store, "left", expected);
  has(store, "right", expected);
  OK(farside_close(store));
}

/* The child of a fork is told, whatever it calls, does no harm by ending, and may open the store for itself. */
static void forks(void) {
  farside_options options;
  farside_store *store = NULL;
  farside_locks *locks = NULL;
  farside_lock *lock = NULL, *other = NULL;
  farside_transaction *transaction = NULL;
  farside_iterator *iterator = NULL;
  farside_slice key, value;
  OK(farside_options_init(&options));
  options.segment = segment("forks");
  options.bytes = 64 << 20;
  store = opened(&options);
  OK(farside_locks_of(store, &locks));
  OK(farside_lock_exclusive(locks, T("parent"), 0, &lock));
  OK(farside_transaction_begin(store, &transaction));
  OK(farside_transaction_set(transaction, T("key"), T("mine")));
  OK(farside_set(store, T("key"), T("value")));
  OK(farside_scan(store, &iterator));

  pid_t child = forked();
  if (child == 0) {
    said(FARSIDE_FORKED, farside_set(store, T("key"), T("child")), "fork()");
    IS(FARSIDE_FORKED, farside_transaction_commit(transaction));
    IS(FARSIDE_FORKED, farside_transaction_free(transaction));
    IS(FARSIDE_FORKED, farside_iterator_next(iterator, &key, &value));
    IS(FARSIDE_FORKED, farside_iterator_free(iterator));
    IS(FARSIDE_FORKED, farside_lock_exclusive(locks, T("child"), 0, &other));
    IS(FARSIDE_FORKED, farside_lock_is_held(lock));
    IS(FARSIDE_FORKED, farside_lock_release(lock));
    IS(FARSIDE_FORKED, farside_locks_close(locks));
    IS(FARSIDE_FORKED, farside_close(store));
    OK(farside_thread_leave());
    store = opened(&options);
    has(store, "key", "value");
    OK(farside_locks_of(store, &locks));
    IS(FARSIDE_TIMEOUT, farside_lock_exclusive(locks, T("parent"), 0, &other));
    OK(farside_locks_close(locks));
    OK(farside_set(store, T("child"), T("was here")));
    OK(farside_close(store));
    exit(0);
  }
  ended_well(child);
  /* One that only ends. */
  child = forked();
  if (child == 0) {
    exit(0);
  }
  ended_well(child);

  OK(farside_lock_is_held(lock));
  OK(farside_lock_release(lock));
  OK(farside_transaction_commit(transaction));
  has(store, "key", "mine");
  has(store, "child", "was here");
  OK(farside_transaction_free(transaction));
  OK(farside_iterator_next(iterator, &key, &value));
  OK(farside_iterator_free(iterator));
  OK(farside_locks_close(locks));
  OK(farside_close(store));
}

/* What ends the process is not what closes the store: a session of the main thread goes with it. */
static void ends_without_closing(void) {
  pid_t child = forked();
  if (child == 0) {
    farside_options options = in_memory();
    OK(farside_set(opened(&options), T("key"), T("value")));
    exit(0);
  }
  ended_well(child);
}

/* A thread whose first call closes something, and which uses a store over a connection later. */
static void *close_and_use(void *store) {
  farside_options options = in_memory();
  OK(farside_close(opened(&options)));
  OK(farside_set(store, T("from a thread"), T("it")));
  return NULL;
}

static void over_a_connection(const char *pool) {
  farside_options options = in_memory();
  options.bytes = FOR_MANY_CLIENTS;
  farside_store *mapped = opened(&options), *far = NULL;
  farside_locks *locks = NULL;
  OK(farside_options_init(&options));
  options.pool = pool;
  far = opened(&options);
  OK(farside_clear(far));
  OK(farside_locks_of(far, &locks));
  threads_on(far, locks);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, close_and_use, far) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  threads_that_end(mapped, far);
  threads_that_end(far, mapped);
  OK(farside_locks_close(locks));
  OK(farside_close(far));
  OK(farside_close(mapped));
}

static void test(const char *name, void (*body)(void)) {
  printf("test %s\n", name);
  fflush(stdout);
  body();
}

int main(int count, char **arguments) {
  if (count < 2 || count > 3) {
    fprintf(stderr, "usage: suite FOLDER [tcp:HOST:PORT]\n");
    return 2;
  }
  folder = arguments[1];
#if defined(RUNNING_ON_VALGRIND)
  rounds = RUNNING_ON_VALGRIND ? 20 : rounds;
#endif
  test("one key", one_key);
  test("many keys", many_keys);
  test("errors", errors);
  test("transactions", transactions);
  test("threads", threads);
  test("named locks", named_locks);
  test("processes", processes);
  test("forks", forks);
  test("ends without closing", ends_without_closing);
  if (count == 3) {
    printf("test over a connection\n");
    fflush(stdout);
    over_a_connection(arguments[2]);
  }
  printf("all passed\n");
  return 0;
}
