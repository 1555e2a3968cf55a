/*
 * Calls that must fail, each with its code: bad arguments, threads, processes, and a daemon that goes
 * away. Arguments: PORT GARBAGE, the latter the port of a server that answers with garbage. The
 * test crashes and starts the daemon when this program asks for it on its standard output.
 */
#define _DEFAULT_SOURCE
#include <nicstripe.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <valgrind/valgrind.h>

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "line %d: %s\n", __LINE__, #what);                                                         \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

/* Expects a code, and an error with the same one. */
#define EXPECT(expected, call)                                                                                         \
    do {                                                                                                               \
        nicstripe_error *error = NULL;                                                                                 \
        int32_t returned = (call);                                                                                     \
        if (returned != (expected) || (returned != 0) != (error != NULL) || (error && error->code != returned)) {      \
            fprintf(stderr, "line %d: %s: %d, %s\n", __LINE__, #call, (int)returned, error ? error->text : "");        \
            _exit(1);                                                                                                  \
        }                                                                                                              \
        nicstripe_error_free(error);                                                                                   \
    } while (0)

static char block[4 << 20];
static size_t len;
static nicstripe_metadata metadata;

static void ask(const char *what)
{
    char line[16];
    printf("%s\n", what);
    fflush(stdout);
    CHECK(fgets(line, sizeof line, stdin) != NULL);
}

static nicstripe_client *connected(const char *port, uint64_t patience_ms)
{
    nicstripe_connect_options options = {.size = sizeof options, .patience_ms = patience_ms};
    nicstripe_client *client;
    options.port = (uint16_t)atoi(port);
    EXPECT(0, nicstripe_connect("127.0.0.1", &options, &client, &error));
    return client;
}

static void nulls_and_bad_options(const nicstripe_client *client)
{
    nicstripe_copy_options options = {.size = sizeof options, .flags = 1ull << 40};
    const char *words[] = {"cat", NULL};
    nicstripe_writer *writer = (nicstripe_writer *)block;
    nicstripe_transfer *transfer;
    nicstripe_reader *reader;
    nicstripe_client *none;
    nicstripe_link_list *links;
    nicstripe_link link;
    nicstripe_output *output;

    EXPECT(NICSTRIPE_NULL, nicstripe_connect(NULL, NULL, &none, &error));
    EXPECT(NICSTRIPE_NULL, nicstripe_connect("127.0.0.1", NULL, NULL, &error));
    EXPECT(NICSTRIPE_ARGUMENT, nicstripe_connect("\xff", NULL, &none, &error));
    CHECK(none == NULL);
    EXPECT(NICSTRIPE_NULL, nicstripe_stat(NULL, "a", &metadata, &error));
    EXPECT(NICSTRIPE_NULL, nicstripe_stat(client, NULL, &metadata, &error));
    EXPECT(NICSTRIPE_NULL, nicstripe_stat(client, "a", NULL, &error));
    CHECK(nicstripe_stat(NULL, NULL, NULL, NULL) == NICSTRIPE_NULL);
    EXPECT(NICSTRIPE_NULL, nicstripe_read(client, "a", 0, NULL, 1, &len, &error));
    EXPECT(NICSTRIPE_NULL, nicstripe_write(client, "a", NULL, 1, NULL, NULL, &error));
    EXPECT(NICSTRIPE_ARGUMENT, nicstripe_write(client, "a", block, SIZE_MAX, NULL, NULL, &error));
    EXPECT(NICSTRIPE_ARGUMENT, nicstripe_write(client, "a", block, 1, &options, NULL, &error));
    EXPECT(NICSTRIPE_NULL, nicstripe_reader_read_at(NULL, 0, block, 1, &len, &error));
    EXPECT(NICSTRIPE_NULL, nicstripe_writer_write(NULL, block, 1, &error));
    EXPECT(NICSTRIPE_NULL, nicstripe_writer_finish(NULL, NULL, &error));
    EXPECT(NICSTRIPE_NULL, nicstripe_transfer_wait(NULL, 0, NULL, &error));
    EXPECT(NICSTRIPE_NULL, nicstripe_entries_next(NULL, NULL, &error));
    EXPECT(NICSTRIPE_NULL, nicstripe_exec(client, words, 2, NULL, 0, &output, &error));
    EXPECT(NICSTRIPE_NULL, nicstripe_exec(client, NULL, 1, NULL, 0, &output, &error));
    EXPECT(NICSTRIPE_NULL, nicstripe_close(NULL, &error));
    EXPECT(NICSTRIPE_ARGUMENT, nicstripe_create(client, "a", &options, &writer, &error));
    CHECK(writer == NULL);
    options.flags = 0;
    options.only_if = "not a tag";
    EXPECT(NICSTRIPE_ARGUMENT, nicstripe_create(client, "a", &options, &writer, &error));
    options.size = 0;
    EXPECT(NICSTRIPE_ARGUMENT, nicstripe_create(client, "a", &options, &writer, &error));

    /* A program of an older header, and one of a newer one that sets a field or does not. */
    struct {
        nicstripe_copy_options known;
        uint64_t further;
    } newer = {.known = {.size = sizeof newer}, .further = 1};
    EXPECT(NICSTRIPE_ARGUMENT, nicstripe_rename(client, "a", "b", &newer.known, &error));
    newer.further = 0;
    EXPECT(NICSTRIPE_PEER, nicstripe_rename(client, "a", "b", &newer.known, &error));
    newer.known.size = sizeof(size_t) + sizeof(uint64_t);
    EXPECT(NICSTRIPE_PEER, nicstripe_rename(client, "a", "b", &newer.known, &error));

    EXPECT(0, nicstripe_links(client, &links, &len, &error));
    CHECK(len > 0);
    EXPECT(NICSTRIPE_ARGUMENT, nicstripe_links_at(links, len, &link, &error));
    nicstripe_links_free(links);
    EXPECT(NICSTRIPE_PEER, nicstripe_open(client, "none", &reader, &error));
    CHECK(reader == NULL);
    EXPECT(0, nicstripe_put(client, "/nonexistent", NULL, NULL, &transfer, &error));
    EXPECT(NICSTRIPE_FILE, nicstripe_transfer_wait(transfer, -1, NULL, &error));
    EXPECT(NICSTRIPE_FINISHED, nicstripe_transfer_wait(transfer, -1, NULL, &error));
    nicstripe_transfer_free(transfer);
    EXPECT(0, nicstripe_create(client, "twice", NULL, &writer, &error));
    EXPECT(0, nicstripe_writer_finish(writer, NULL, &error));
    EXPECT(NICSTRIPE_FINISHED, nicstripe_writer_finish(writer, NULL, &error));
    EXPECT(NICSTRIPE_FINISHED, nicstripe_writer_write(writer, "a", 1, &error));
    nicstripe_writer_free(writer);

    nicstripe_client_free(NULL);
    nicstripe_reader_close(NULL);
    nicstripe_writer_free(NULL);
    nicstripe_transfer_free(NULL);
    nicstripe_entries_free(NULL);
    nicstripe_links_free(NULL);
    nicstripe_output_free(NULL);
    nicstripe_error_free(NULL);
}

static void names(const nicstripe_client *client)
{
    nicstripe_entries *entries;
    nicstripe_entry entry;

    nicstripe_transfer *unset = (nicstripe_transfer *)block;
    EXPECT(NICSTRIPE_NAME, nicstripe_put(client, "/dev/null", "../x", NULL, &unset, &error));
    CHECK(unset == NULL);
    for (const char *const *bad = (const char *const[]){"../x", "a/../b", "/a", "", ".", NULL}; *bad; bad++) {
        EXPECT(NICSTRIPE_NAME, nicstripe_stat(client, *bad, &metadata, &error));
        EXPECT(NICSTRIPE_NAME, nicstripe_write(client, *bad, "x", 1, NULL, NULL, &error));
    }
    EXPECT(0, nicstripe_make_dir(client, "names", &error));
    EXPECT(0, nicstripe_write(client, "names/\xff\x01", "x", 1, NULL, NULL, &error));
    EXPECT(0, nicstripe_stat(client, "names/\xff\x01", &metadata, &error));
    CHECK(metadata.size == 1);
    EXPECT(0, nicstripe_list(client, "names", &entries, &error));
    EXPECT(0, nicstripe_entries_next(entries, &entry, &error));
    CHECK(strcmp(entry.name, "\xff\x01") == 0);
    EXPECT(0, nicstripe_entries_next(entries, &entry, &error));
    CHECK(entry.name == NULL);
    nicstripe_entries_free(entries);
}

static void a_child(nicstripe_client *client)
{
    nicstripe_reader *reader;
    nicstripe_writer *writer;
    nicstripe_transfer *transfer;
    nicstripe_progress progress;
    int status;

    memset(block, 7, sizeof block);
    EXPECT(0, nicstripe_write(client, "large", block, sizeof block, NULL, NULL, &error));
    EXPECT(0, nicstripe_open(client, "large", &reader, &error));
    EXPECT(0, nicstripe_reader_read_at(reader, 0, block, 1000, &len, &error));
    EXPECT(0, nicstripe_create(client, "written", NULL, &writer, &error));
    EXPECT(0, nicstripe_writer_write(writer, block, 1000, &error));
    EXPECT(0, nicstripe_get(client, "large", "/dev/shm/nicstripe-c-test", NULL, &transfer, &error));
    EXPECT(0, nicstripe_transfer_cancel(transfer, &error));
    pid_t child = fork();
    if (child == 0) {
        EXPECT(NICSTRIPE_FORKED, nicstripe_stat(client, "large", &metadata, &error));
        EXPECT(NICSTRIPE_FORKED, nicstripe_reader_read_at(reader, 1000, block, 1000, &len, &error));
        EXPECT(NICSTRIPE_FORKED, nicstripe_writer_write(writer, block, 1000, &error));
        EXPECT(NICSTRIPE_FORKED, nicstripe_writer_finish(writer, NULL, &error));
        EXPECT(NICSTRIPE_FORKED, nicstripe_transfer_progress(transfer, &progress, &error));
        EXPECT(NICSTRIPE_FORKED, nicstripe_close(client, &error));
        nicstripe_reader_close(reader);
        nicstripe_writer_free(writer);
        nicstripe_transfer_free(transfer);
        nicstripe_client_free(client);
        CHECK(VALGRIND_COUNT_ERRORS == 0);
        /* Without valgrind's search for leaks: what the other threads had on their stacks is lost. */
        execlp("true", "true", (char *)NULL);
        _exit(1);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    EXPECT(0, nicstripe_reader_read_at(reader, 1, block, sizeof block, &len, &error));
    CHECK(len == sizeof block - 1);
    EXPECT(0, nicstripe_writer_write(writer, block, 1000, &error));
    EXPECT(0, nicstripe_writer_finish(writer, NULL, &error));
    EXPECT(0, nicstripe_stat(client, "written", &metadata, &error));
    CHECK(metadata.size == 2000);
    nicstripe_reader_close(reader);
    nicstripe_writer_free(writer);
    nicstripe_transfer_free(transfer);
}

static void *read_until_interrupted(void *reader)
{
    size_t got;
    int32_t code;
    do
        code = nicstripe_reader_read_at(reader, 2 << 20, block, 1 << 20, &got, NULL);
    while (code == NICSTRIPE_IN_USE);
    CHECK(code == NICSTRIPE_CANCELLED);
    return NULL;
}

static void *wait_until_interrupted(void *transfer)
{
    int32_t code;
    do
        code = nicstripe_transfer_wait(transfer, -1, NULL, NULL);
    while (code == NICSTRIPE_IN_USE);
    CHECK(code == NICSTRIPE_CANCELLED);
    return NULL;
}

/* While the daemon is away, calls wait: for their time, or for an interruption. */
static void a_daemon_that_is_away(nicstripe_client *client)
{
    nicstripe_client *hurried;
    nicstripe_reader *reader;
    nicstripe_transfer *transfer;
    nicstripe_progress progress;
    nicstripe_writer *writer;
    pthread_t reading, waiting;
    int32_t code;
    char byte;

    EXPECT(0, nicstripe_open(client, "large", &reader, &error));
    EXPECT(0, nicstripe_client_clone(client, 200, &hurried, &error));
    ask("crash");
    EXPECT(NICSTRIPE_TIMED_OUT, nicstripe_stat(hurried, "large", &metadata, &error));
    EXPECT(0, nicstripe_put(client, "/proc/self/exe", "late", NULL, &transfer, &error));
    EXPECT(NICSTRIPE_TIMED_OUT, nicstripe_transfer_wait(transfer, 100, NULL, &error));
    CHECK(pthread_create(&reading, NULL, read_until_interrupted, reader) == 0);
    CHECK(pthread_create(&waiting, NULL, wait_until_interrupted, transfer) == 0);
    /* Until the threads are in their calls. */
    do {
        usleep(1000);
        code = nicstripe_transfer_wait(transfer, 0, NULL, NULL);
    } while (code == NICSTRIPE_TIMED_OUT);
    CHECK(code == NICSTRIPE_IN_USE);
    do {
        usleep(1000);
        code = nicstripe_reader_stat(reader, &metadata, NULL);
    } while (code == NICSTRIPE_OK);
    CHECK(code == NICSTRIPE_IN_USE);
    EXPECT(NICSTRIPE_IN_USE, nicstripe_reader_read_at(reader, 0, &byte, 1, &len, &error));
    EXPECT(0, nicstripe_transfer_progress(transfer, &progress, &error));
    EXPECT(0, nicstripe_client_interrupt(client, &error));
    CHECK(pthread_join(reading, NULL) == 0 && pthread_join(waiting, NULL) == 0);
    EXPECT(NICSTRIPE_CANCELLED, nicstripe_stat(client, "large", &metadata, &error));

    /* Nobody knows how much of a piece was taken, so that the file cannot be completed. */
    EXPECT(0, nicstripe_create(hurried, "torn", NULL, &writer, &error));
    do
        code = nicstripe_writer_write(writer, block, sizeof block, NULL);
    while (code == NICSTRIPE_OK);
    CHECK(code == NICSTRIPE_TIMED_OUT);
    EXPECT(NICSTRIPE_FINISHED, nicstripe_writer_write(writer, block, 1, &error));
    EXPECT(NICSTRIPE_FINISHED, nicstripe_writer_finish(writer, NULL, &error));
    nicstripe_writer_free(writer);
    ask("start");
    nicstripe_client_free(hurried);
    EXPECT(0, nicstripe_client_clone(client, 0, &hurried, &error));
    EXPECT(0, nicstripe_stat(hurried, "large", &metadata, &error));
    EXPECT(NICSTRIPE_PEER, nicstripe_stat(hurried, "torn", &metadata, &error));
    nicstripe_client_free(hurried);
    nicstripe_reader_close(reader);
    nicstripe_transfer_free(transfer);
}

/* A client without patience reports that the daemon went away in the middle. */
static void a_daemon_that_goes_away(const char *port)
{
    nicstripe_client *client = connected(port, 500);
    nicstripe_reader *reader;
    nicstripe_writer *writer;
    nicstripe_error *error;
    int32_t code = 0;

    EXPECT(0, nicstripe_open(client, "large", &reader, &error));
    EXPECT(0, nicstripe_reader_read_at(reader, 0, block, 1000, &len, &error));
    EXPECT(0, nicstripe_create(client, "half", NULL, &writer, &error));
    EXPECT(0, nicstripe_writer_write(writer, block, 1 << 20, &error));
    ask("crash");
    for (uint64_t at = 1 << 20; code == 0 && at < sizeof block; at += 1 << 20)
        code = nicstripe_reader_read_at(reader, at, block, 1 << 20, &len, NULL);
    CHECK(code > 0);
    do
        code = nicstripe_writer_write(writer, block, sizeof block, &error);
    while (code == NICSTRIPE_OK);
    CHECK(code > 0 && strlen(error->text) > 0 && strlen(error->word) > 0 && strlen(error->actor) > 0);
    nicstripe_error_free(error);
    EXPECT(NICSTRIPE_FINISHED, nicstripe_writer_finish(writer, NULL, &error));
    nicstripe_reader_close(reader);
    nicstripe_writer_free(writer);
    nicstripe_client_free(client);
    ask("start");
    client = connected(port, 5000);
    EXPECT(NICSTRIPE_PEER, nicstripe_stat(client, "half", &metadata, &error));
    nicstripe_client_free(client);
}

static void a_closed_client(const char *port)
{
    nicstripe_client *client = connected(port, 1000), *clone;
    nicstripe_reader *reader, *none;
    nicstripe_writer *writer;
    nicstripe_transfer *transfer;

    EXPECT(0, nicstripe_client_clone(client, 0, &clone, &error));
    EXPECT(0, nicstripe_open(client, "large", &reader, &error));
    EXPECT(0, nicstripe_close(client, &error));
    EXPECT(0, nicstripe_close(clone, &error));
    EXPECT(NICSTRIPE_CLOSED, nicstripe_stat(client, "large", &metadata, &error));
    EXPECT(NICSTRIPE_CLOSED, nicstripe_stat(clone, "large", &metadata, &error));
    EXPECT(NICSTRIPE_CLOSED, nicstripe_open(client, "large", &none, &error));
    nicstripe_reader_close(reader);
    EXPECT(0, nicstripe_put(client, "/proc/self/exe", "x", NULL, &transfer, &error));
    EXPECT(NICSTRIPE_CLOSED, nicstripe_transfer_wait(transfer, -1, NULL, &error));
    EXPECT(0, nicstripe_create(client, "x", NULL, &writer, &error));
    CHECK(nicstripe_writer_write(writer, block, sizeof block, NULL) > 0);
    nicstripe_writer_free(writer);
    nicstripe_transfer_free(transfer);
    nicstripe_client_free(client);
    nicstripe_client_free(clone);
}

static void a_server_of_garbage(const char *port)
{
    nicstripe_connect_options options = {.size = sizeof options, .patience_ms = 1000};
    nicstripe_client *client;
    nicstripe_error *error;

    options.port = (uint16_t)atoi(port);
    CHECK(nicstripe_connect("127.0.0.1", &options, &client, &error) > 0 && client == NULL);
    fprintf(stderr, "garbage: %s\n", error->text);
    nicstripe_error_free(error);
}

int main(int count, char **words)
{
    CHECK(count == 3);
    nicstripe_client *client = connected(words[1], 60000);
    nulls_and_bad_options(client);
    names(client);
    a_child(client);
    a_daemon_that_is_away(client);
    nicstripe_client_free(client);
    a_daemon_that_goes_away(words[1]);
    a_closed_client(words[1]);
    a_server_of_garbage(words[2]);
    return 0;
}
