/*
 * Counts visits in memory that processes share. Start it several times:
 *
 *     visits /dev/shm/visits.segment alice
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "farside.h"

static int failed(const char *what) {
  fprintf(stderr, "%s: %s\n", what, farside_last_error());
  return 1;
}

int main(int count, char **arguments) {
  farside_options options;
  farside_store *store = NULL;
  int64_t visits = 0;
  char last[64];
  size_t length = 0;
  if (count != 3) {
    fprintf(stderr, "usage: visits SEGMENT NAME\n");
    return 2;
  }
  const char *name = arguments[2];

  farside_options_init(&options);
  options.segment = arguments[1];
  options.bytes = 64 << 20;
  if (farside_open(&options, &store) != FARSIDE_OK) {
    return failed("cannot open the store");
  }
  if (farside_increment(store, name, strlen(name), 1, &visits) != FARSIDE_OK) {
    return failed("cannot count");
  }
  printf("visit %" PRId64 " of %s\n", visits, name);

  /* Who came last? */
  switch (farside_get(store, "last", 4, last, sizeof last, &length)) {
  case FARSIDE_OK:
    printf("after %.*s\n", (int)length, last);
    break;
  case FARSIDE_NOT_FOUND:
    printf("nobody came before\n");
    break;
  case FARSIDE_BUFFER_TOO_SMALL:
    printf("after somebody with a name of %zu bytes\n", length);
    break;
  default:
    return failed("cannot look who came last");
  }
  /* Forgotten after an hour. */
  if (farside_set_with(store, "last", 4, name, strlen(name), 0, 3600 * 1000) != FARSIDE_OK) {
    return failed("cannot note who came");
  }
  return farside_close(store) == FARSIDE_OK ? 0 : failed("cannot close the store");
}
