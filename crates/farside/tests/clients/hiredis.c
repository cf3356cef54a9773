/* hiredis against a gateway: what programs do with it.
 *
 * usage: hiredis PORT */
#include <hiredis/hiredis.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(holds)                                                                                                   \
    do {                                                                                                               \
        if (!(holds)) {                                                                                                \
            fprintf(stderr, "hiredis.c:%d: %s\n", __LINE__, #holds);                                                   \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static redisReply *ask(redisContext *context, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    redisReply *reply = redisvCommand(context, format, arguments);
    va_end(arguments);
    CHECK(reply != NULL);
    return reply;
}

static void is_text(redisReply *reply, const char *expected, size_t length) {
    CHECK(reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_STATUS);
    CHECK(reply->len == length && memcmp(reply->str, expected, length) == 0);
    freeReplyObject(reply);
}

static void is_number(redisReply *reply, long long expected) {
    CHECK(reply->type == REDIS_REPLY_INTEGER && reply->integer == expected);
    freeReplyObject(reply);
}

static void values(redisContext *context) {
    is_text(ask(context, "FLUSHALL"), "OK", 2);
    char binary[256];
    for (int index = 0; index < 256; index++) binary[index] = (char)index;
    is_text(ask(context, "SET %b %b", "\0k\r\n", (size_t)4, binary, sizeof binary), "OK", 2);
    is_text(ask(context, "GET %b", "\0k\r\n", (size_t)4), binary, sizeof binary);
    redisReply *none = ask(context, "GET none");
    CHECK(none->type == REDIS_REPLY_NIL);
    freeReplyObject(none);
    size_t length = 3000000;
    char *large = malloc(length);
    CHECK(large != NULL);
    memset(large, 'v', length);
    is_text(ask(context, "SET large %b", large, length), "OK", 2);
    is_text(ask(context, "GETDEL large"), large, length);
    free(large);
    is_number(ask(context, "INCRBY n 40"), 40);
    is_text(ask(context, "SET e v PX 60000"), "OK", 2);
    is_number(ask(context, "PERSIST e"), 1);
    is_number(ask(context, "TTL e"), -1);
    redisReply *unknown = ask(context, "XLEN l");
    CHECK(unknown->type == REDIS_REPLY_ERROR && strstr(unknown->str, "unknown command") != NULL);
    freeReplyObject(unknown);
}

static void pipeline(redisContext *context) {
    is_text(ask(context, "FLUSHALL"), "OK", 2);
    for (int number = 0; number < 1000; number++) CHECK(redisAppendCommand(context, "SET key:%d v", number) == REDIS_OK);
    for (int number = 0; number < 1000; number++) {
        void *reply;
        CHECK(redisGetReply(context, &reply) == REDIS_OK);
        is_text(reply, "OK", 2);
    }
    char cursor[32] = "0";
    size_t found = 0;
    do {
        redisReply *page = ask(context, "SCAN %s MATCH key:* COUNT 100", cursor);
        CHECK(page->type == REDIS_REPLY_ARRAY && page->elements == 2);
        found += page->element[1]->elements;
        snprintf(cursor, sizeof cursor, "%s", page->element[0]->str);
        freeReplyObject(page);
    } while (strcmp(cursor, "0") != 0);
    CHECK(found == 1000);
    is_number(ask(context, "DBSIZE"), 1000);
}

static void transactions(redisContext *context) {
    is_text(ask(context, "MULTI"), "OK", 2);
    is_text(ask(context, "SET t 1"), "QUEUED", 6);
    is_text(ask(context, "INCR t"), "QUEUED", 6);
    redisReply *done = ask(context, "EXEC");
    CHECK(done->type == REDIS_REPLY_ARRAY && done->elements == 2 && done->element[1]->integer == 2);
    freeReplyObject(done);
}

#if HIREDIS_MAJOR >= 1
#define PROTOCOL_MAX 3
#define IS_MAP(reply) ((reply)->type == REDIS_REPLY_MAP)
#else
/* It does not know the newer protocol. */
#define PROTOCOL_MAX 2
#define IS_MAP(reply) 0
#endif

int main(int count, char **arguments) {
    CHECK(count == 2);
    redisContext *context = redisConnect("127.0.0.1", atoi(arguments[1]));
    CHECK(context != NULL && context->err == 0);
    for (int protocol = 2; protocol <= PROTOCOL_MAX; protocol++) {
        redisReply *hello = ask(context, "HELLO %d", protocol);
        CHECK(protocol == 2 ? hello->type == REDIS_REPLY_ARRAY : IS_MAP(hello));
        freeReplyObject(hello);
        values(context);
        pipeline(context);
        transactions(context);
        is_text(ask(context, "SET kept v"), "OK", 2);
        /* The server is killed and started again on the same segment. */
        puts("restart");
        fflush(stdout);
        CHECK(getchar() == '\n');
        CHECK(redisReconnect(context) == REDIS_OK);
        is_text(ask(context, "GET kept"), "v", 1);
    }
    redisFree(context);
    puts("done");
    return 0;
}
