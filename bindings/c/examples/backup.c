/*
 * A small backup tool: each function of nicstripe.h once.
 *
 *     cc -std=c11 -o backup backup.c $(pkg-config --cflags --libs nicstripe)
 *     backup HOST PORT FILE TREE
 *
 * Uses the key and the trusted peers of the command `nicstripe`. Leaves `backup/` at the daemon, and
 * what it fetches in FILE.back and TREE.back.
 */
#include <inttypes.h>
#include <nicstripe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static nicstripe_error *error;

/* Ends the program if a call failed. */
static void check(int32_t code, const char *what)
{
    if (code == NICSTRIPE_OK)
        return;
    fprintf(stderr, "%s: %s (%s, %d; to act: %s)%s\n", what, error->text, error->word, (int)code, error->actor,
            error->is_retryable ? ", try again later" : "");
    code = error->exit_code;
    nicstripe_error_free(error);
    exit(code);
}

/* Prints the progress until a transfer ends, and frees it. */
static void wait_for(nicstripe_transfer *transfer, const char *what)
{
    nicstripe_report report;
    nicstripe_progress progress;
    const char *name, *why;
    int32_t code;

    for (;;) {
        check(nicstripe_transfer_progress(transfer, &progress, &error), what);
        printf("%s: %" PRIu64 " of %" PRIu64 " bytes over %" PRIu32 " links\n", what, progress.bytes, progress.size,
               progress.links_up);
        code = nicstripe_transfer_wait(transfer, 200, &report, &error);
        if (code != NICSTRIPE_TIMED_OUT)
            break;
        nicstripe_error_free(error);
    }
    check(code, what);
    printf("%s: %" PRIu64 " bytes, %" PRIu64 " files, %" PRIu64 " failed, BLAKE3 %s\n", what, report.size, report.files,
           report.failed, report.digest);
    for (size_t at = 0;; at++) {
        check(nicstripe_transfer_failure(transfer, at, &name, &why, &error), what);
        if (name == NULL)
            break;
        printf("%s: %s: %s\n", what, name, why);
    }
    nicstripe_transfer_free(transfer);
}

static void copy_files(const nicstripe_client *client, const char *file, const char *tree)
{
    const nicstripe_copy_options options = {
        .size = sizeof options,
        .flags = NICSTRIPE_REPLACE | NICSTRIPE_PARENTS | NICSTRIPE_PRESERVE,
    };
    const char *const without[] = {"*.tmp"};
    const nicstripe_copy_options deep = {
        .size = sizeof deep,
        .flags = NICSTRIPE_REPLACE | NICSTRIPE_RECURSIVE | NICSTRIPE_AS_NAME,
        .filters = without,
        .filters_count = 1,
    };
    const char *const trees[] = {tree}, *const kept[] = {"backup/tree/"};
    char back[4096];
    nicstripe_transfer *transfer;

    check(nicstripe_put(client, file, "backup/file", &options, &transfer, &error), "put");
    wait_for(transfer, "put");
    snprintf(back, sizeof back, "%s.back", file);
    check(nicstripe_get(client, "backup/file", back, &options, &transfer, &error), "get");
    wait_for(transfer, "get");
    check(nicstripe_put_tree(client, trees, 1, "backup/tree", &deep, &transfer, &error), "put tree");
    wait_for(transfer, "put tree");
    snprintf(back, sizeof back, "%s.back", tree);
    check(nicstripe_get_tree(client, kept, 1, back, &deep, &transfer, &error), "get tree");
    wait_for(transfer, "get tree");

    /* A transfer that is cancelled keeps what has arrived. */
    check(nicstripe_put(client, file, "backup/cancelled", &options, &transfer, &error), "put");
    check(nicstripe_transfer_cancel(transfer, &error), "cancel");
    int32_t code = nicstripe_transfer_wait(transfer, -1, NULL, NULL);
    printf("cancelled: %s\n", code == NICSTRIPE_CANCELLED || code == NICSTRIPE_OK ? "yes" : "no");
    nicstripe_transfer_free(transfer);
}

static void use_objects(const nicstripe_client *client)
{
    const nicstripe_copy_options options = {.size = sizeof options, .flags = NICSTRIPE_REPLACE};
    nicstripe_copy_options same = {.size = sizeof same, .flags = NICSTRIPE_REPLACE};
    nicstripe_writer *writer;
    nicstripe_reader *reader;
    nicstripe_report report;
    nicstripe_metadata metadata;
    char buffer[64] = "";
    size_t read;

    check(nicstripe_make_dir(client, "backup/packs", &error), "make_dir");
    check(nicstripe_create(client, "backup/packs/1", &options, &writer, &error), "create");
    for (int line = 0; line < 1000; line++) {
        check(nicstripe_writer_write(writer, "a line of the pack\n", 19, &error), "write");
    }
    check(nicstripe_writer_finish(writer, &report, &error), "finish");
    nicstripe_writer_free(writer);

    check(nicstripe_open(client, "backup/packs/1", &reader, &error), "open");
    check(nicstripe_reader_stat(reader, &metadata, &error), "reader stat");
    check(nicstripe_reader_read_at(reader, metadata.size - 19, buffer, sizeof buffer, &read, &error), "read_at");
    printf("last of %" PRIu64 " bytes: %.*s", metadata.size, (int)read, buffer);
    nicstripe_reader_close(reader);

    check(nicstripe_write(client, "backup/index", "1", 1, &options, &report, &error), "write");
    same.only_if = report.etag; /* Nobody else has replaced it. */
    check(nicstripe_write(client, "backup/index", "1 2", 3, &same, NULL, &error), "write");
    check(nicstripe_read(client, "backup/index", 2, buffer, 1, &read, &error), "read");
    printf("read %zu byte: %.1s\n", read, buffer);
    check(nicstripe_copy(client, "backup/index", "backup/index.copy", &options, &metadata, &error), "copy");
    check(nicstripe_rename(client, "backup/index.copy", "backup/index.old", &options, &error), "rename");
    check(nicstripe_stat(client, "backup/index.old", &metadata, &error), "stat");
    check(nicstripe_verify(client, "backup/index.old", &metadata, &error), "verify");
    printf("index.old has %" PRIu64 " bytes, BLAKE3 %.8s\n", metadata.size, metadata.digest);
    check(nicstripe_remove(client, "backup/index.old", &error), "remove");

    /* An error that the program expects. */
    if (nicstripe_stat(client, "backup/index.old", &metadata, &error) != NICSTRIPE_OK) {
        printf("removed: %s\n", error->fail == NICSTRIPE_FAIL_NOT_FOUND ? "yes" : error->text);
        nicstripe_error_free(error);
    }
}

static void list(nicstripe_entries *entries, const char *what)
{
    nicstripe_entry entry;

    for (;;) {
        check(nicstripe_entries_next(entries, &entry, &error), what);
        if (entry.name == NULL)
            break;
        printf("%s: %s%s\n", what, entry.name, entry.metadata.kind == NICSTRIPE_KIND_DIRECTORY ? "/" : "");
    }
    nicstripe_entries_free(entries);
}

int main(int count, char **words)
{
    nicstripe_connect_options options = {.size = sizeof options, .patience_ms = 60000};
    const char *const command[] = {"cat", "-"};
    nicstripe_client *client, *hurried;
    nicstripe_link_list *links;
    nicstripe_link link;
    nicstripe_entries *entries;
    nicstripe_output *output;
    size_t found;

    if (count != 5) {
        fprintf(stderr, "usage: backup HOST PORT FILE TREE\n");
        return 2;
    }
    options.port = (uint16_t)atoi(words[2]);
    check(nicstripe_connect(words[1], &options, &client, &error), "connect");
    check(nicstripe_links(client, &links, &found, &error), "links");
    for (size_t at = 0; at < found; at++) {
        check(nicstripe_links_at(links, at, &link, &error), "link");
        printf("link %s to %s is %s\n", link.interface, link.remote, link.state);
    }
    nicstripe_links_free(links);

    copy_files(client, words[3], words[4]);
    use_objects(client);
    check(nicstripe_list(client, "backup", &entries, &error), "list");
    list(entries, "list");
    check(nicstripe_walk(client, "backup", "packs", &entries, &error), "walk");
    list(entries, "walk");

    check(nicstripe_exec(client, command, 2, "input", 5, &output, &error), "exec");
    printf("exec: %d, \"%s\" and \"%s\"\n", (int)output->exit_code, (const char *)output->out.bytes,
           (const char *)output->err.bytes);
    nicstripe_output_free(output);

    /* Calls of a clone end early, or when another thread wants them to. */
    check(nicstripe_client_clone(client, 5000, &hurried, &error), "clone");
    check(nicstripe_client_interrupt(hurried, &error), "interrupt");
    printf("interrupted: %d\n", (int)nicstripe_make_dir(hurried, "backup/none", NULL));
    nicstripe_client_free(hurried);

    check(nicstripe_close(client, &error), "close");
    nicstripe_client_free(client);
    printf("done by nicstripe %s\n", nicstripe_version());
    return 0;
}
