/*
 * Rate of one file, or of objects one after another, by the C interface. The base line is the same by
 * the library: `cargo run --release --example rate -- HOST put`.
 *
 *     cc -std=c11 -O2 -o rate rate.c $(pkg-config --cflags --libs nicstripe)
 *     rate HOST put|get|put-objects|get-objects [MIB]
 *
 * Prints MB/s of MIB MiB (2048) of random data, from the first byte until it is durable, or read.
 * NICSTRIPE_PORT names another port than 7747.
 */
#define _POSIX_C_SOURCE 200809L
#include <nicstripe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PIECE = 1 << 20, OBJECT = 2 << 20 };

static nicstripe_error *error;
static char data[OBJECT];

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

static const nicstripe_copy_options replacing = {
    .size = sizeof replacing,
    .flags = NICSTRIPE_REPLACE | NICSTRIPE_PARENTS,
};

static void put(const nicstripe_client *client, size_t size)
{
    nicstripe_writer *writer;
    check(nicstripe_create(client, "rate", &replacing, &writer, &error));
    for (size_t at = 0; at < size; at += PIECE)
        check(nicstripe_writer_write(writer, data, PIECE, &error));
    check(nicstripe_writer_finish(writer, NULL, &error));
    nicstripe_writer_free(writer);
}

static void get(const nicstripe_client *client, size_t size)
{
    nicstripe_reader *reader;
    check(nicstripe_open(client, "rate", &reader, &error));
    size_t read = 0;
    for (size_t at = 0; at < size; at += read)
        check(nicstripe_reader_read_at(reader, at, data, PIECE, &read, &error));
    nicstripe_reader_close(reader);
}

static void objects(const nicstripe_client *client, size_t size, int is_put)
{
    char name[64];
    size_t read;
    for (size_t number = 0; number < size / OBJECT; number++) {
        snprintf(name, sizeof name, "objects/%zu", number);
        if (is_put)
            check(nicstripe_write(client, name, data, OBJECT, &replacing, NULL, &error));
        else
            check(nicstripe_read(client, name, 0, data, OBJECT, &read, &error));
    }
}

int main(int count, char **arguments)
{
    if (count < 3) {
        fprintf(stderr, "usage: rate HOST put|get|put-objects|get-objects [MIB]\n");
        return 2;
    }
    const char *what = arguments[2], *port = getenv("NICSTRIPE_PORT");
    size_t size = (count > 3 ? strtoul(arguments[3], NULL, 10) : 2048) << 20;
    FILE *random = fopen("/dev/urandom", "rb");
    if (random == NULL || fread(data, OBJECT, 1, random) != 1)
        return 1;
    fclose(random);
    nicstripe_connect_options options = { .size = sizeof options };
    if (port != NULL)
        options.port = (uint16_t)atoi(port);
    nicstripe_client *client;
    check(nicstripe_connect(arguments[1], &options, &client, &error));
    double begun = now();
    if (strcmp(what, "put") == 0)
        put(client, size);
    else if (strcmp(what, "get") == 0)
        get(client, size);
    else
        objects(client, size, strcmp(what, "put-objects") == 0);
    printf("%.1f\n", (double)size / (now() - begun) / 1e6);
    check(nicstripe_close(client, &error));
    nicstripe_client_free(client);
    return 0;
}
