/*
 * Rates of the C interface in MB/s, to compare with `integrations/object_store/examples/rate.rs`.
 *
 *     cc -std=c11 -O2 -o rate rate.c $(pkg-config --cflags --libs nicstripe)
 *     rate HOST PORT FILE [RUNS]
 *
 * Puts FILE and gets it back as FILE.back, then writes and reads an object of as many bytes, in
 * pieces of 8 MiB. Each RUNS times (3); the best counts. The objects are below `rate/`.
 */
#define _POSIX_C_SOURCE 200809L
#include <nicstripe.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PIECE = 8 << 20 };

static nicstripe_error *error;
static char piece[PIECE];

static void check(int32_t code)
{
    if (code != NICSTRIPE_OK) {
        fprintf(stderr, "error: %s\n", error->text);
        exit(error->exit_code);
    }
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static const nicstripe_copy_options options = {
    .size = sizeof options,
    .flags = NICSTRIPE_REPLACE | NICSTRIPE_PARENTS,
};

static void finish(nicstripe_transfer *transfer, nicstripe_report *report)
{
    check(nicstripe_transfer_wait(transfer, -1, report, &error));
    nicstripe_transfer_free(transfer);
}

static void put(const nicstripe_client *client, const char *file, nicstripe_report *report)
{
    nicstripe_transfer *transfer;
    check(nicstripe_put(client, file, "rate/file", &options, &transfer, &error));
    finish(transfer, report);
}

static void get(const nicstripe_client *client, const char *file, nicstripe_report *report)
{
    nicstripe_transfer *transfer;
    char back[4096];
    snprintf(back, sizeof back, "%s.back", file);
    check(nicstripe_get(client, "rate/file", back, &options, &transfer, &error));
    finish(transfer, report);
}

static void write_object(const nicstripe_client *client, const char *file, nicstripe_report *report)
{
    nicstripe_writer *writer;
    uint64_t left = report->size;
    (void)file;
    check(nicstripe_create(client, "rate/object", &options, &writer, &error));
    while (left > 0) {
        size_t len = left < PIECE ? (size_t)left : PIECE;
        check(nicstripe_writer_write(writer, piece, len, &error));
        left -= len;
    }
    check(nicstripe_writer_finish(writer, report, &error));
    nicstripe_writer_free(writer);
}

static void read_object(const nicstripe_client *client, const char *file, nicstripe_report *report)
{
    nicstripe_reader *reader;
    size_t read;
    (void)file;
    check(nicstripe_open(client, "rate/object", &reader, &error));
    for (uint64_t at = 0; at < report->size; at += read) {
        check(nicstripe_reader_read_at(reader, at, piece, PIECE, &read, &error));
    }
    nicstripe_reader_close(reader);
}

int main(int count, char **words)
{
    static const struct {
        const char *name;
        void (*run)(const nicstripe_client *, const char *, nicstripe_report *);
    } all[] = {{"put", put}, {"get", get}, {"write", write_object}, {"read", read_object}};
    nicstripe_connect_options connection = {.size = sizeof connection};
    nicstripe_client *client;
    nicstripe_report report = {0};

    if (count < 4) {
        fprintf(stderr, "usage: rate HOST PORT FILE [RUNS]\n");
        return 2;
    }
    connection.port = (uint16_t)atoi(words[2]);
    int runs = count > 4 ? atoi(words[4]) : 3;
    check(nicstripe_connect(words[1], &connection, &client, &error));
    for (size_t at = 0; at < sizeof all / sizeof all[0]; at++) {
        double best = 0;
        for (int run = 0; run < runs; run++) {
            double begun = now();
            all[at].run(client, words[3], &report);
            double rate = (double)report.size / (now() - begun) / 1e6;
            best = rate > best ? rate : best;
        }
        printf("%-6s %8.1f MB/s\n", all[at].name, best);
    }
    check(nicstripe_remove(client, "rate/file", &error));
    check(nicstripe_remove(client, "rate/object", &error));
    check(nicstripe_remove(client, "rate", &error));
    check(nicstripe_close(client, &error));
    nicstripe_client_free(client);
    return 0;
}
