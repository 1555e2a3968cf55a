/*
 * nicstripe: copies, and objects at a daemon, over every cable that leads there.
 *
 * Results. A function returns 0 (NICSTRIPE_OK) or the nicstripe_code of its error. It stores the
 * error through its last argument, and NULL on success; free it with nicstripe_error_free. The argument may be
 * NULL. A function that fails stores NULL in place of a handle. No function aborts or throws: a panic in the
 * library becomes NICSTRIPE_PANIC.
 *
 * Ownership. Each handle is freed by the function that its type names, once, after the last call with
 * it. Texts and entries belong to the handle or struct that they come from. Arguments belong to the
 * caller and are read only during the call.
 *
 * Names are bytes with `/` between components, relative to the daemon's root, NUL-terminated, and need
 * not be UTF-8. `..`, a leading `/` and an empty name are NICSTRIPE_NAME. Paths on this machine are
 * bytes, too. Host names, links and filters are UTF-8.
 *
 * Threads. Any number of threads may use a client at once. One thread at a time may be in a call with a
 * reader, a writer, a listing or the wait of a transfer; a second one gets NICSTRIPE_IN_USE. An error, and
 * the handle of a thread that is done, may move to another thread. Nothing is kept per thread. Freeing
 * a handle while another thread uses it is undefined.
 *
 * Processes. A client has threads, which a child process made by fork(2) does not have. There each
 * call returns NICSTRIPE_FORKED, and freeing a handle leaks it, so that the parent's connections stay
 * as they are. Connect after fork.
 *
 * Signals. No function is safe in a signal handler.
 *
 * Struct layout. Options begin with their size and may grow. Structs that the library fills change only
 * with the soname.
 */

#ifndef NICSTRIPE_H
#define NICSTRIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Return value of a function. Positive codes are the kinds of errors of nicstripe and never change
 * their meaning; further ones may come. Negative codes are those of this interface.
 */
typedef enum nicstripe_code {
  /**
   * Success.
   */
  NICSTRIPE_OK = 0,
  /**
   * The host's name or address cannot be resolved.
   */
  NICSTRIPE_RESOLVE = 1,
  /**
   * A named link cannot be used.
   */
  NICSTRIPE_LINK = 2,
  /**
   * No interface can be used to search for daemons.
   */
  NICSTRIPE_NO_INTERFACE = 3,
  /**
   * Not returned by this interface.
   */
  NICSTRIPE_NO_RUNTIME = 4,
  /**
   * The threads of the client have ended.
   */
  NICSTRIPE_RUNTIME_ENDED = 5,
  /**
   * The handle was made by the parent of this process. Connect after `fork`.
   */
  NICSTRIPE_FORKED = 6,
  /**
   * The client is closed.
   */
  NICSTRIPE_CLOSED = 7,
  /**
   * All transfers that a client may have (64) are running, and none moves.
   */
  NICSTRIPE_CROWDED = 8,
  /**
   * No link could connect to the daemon.
   */
  NICSTRIPE_CONNECT = 9,
  /**
   * No address of the host answered.
   */
  NICSTRIPE_UNREACHABLE = 10,
  /**
   * Every link was lost and none came back within the patience.
   */
  NICSTRIPE_ABANDONED = 11,
  /**
   * The daemon is connected and made no progress within the patience.
   */
  NICSTRIPE_STALLED = 12,
  /**
   * The daemon's key is not trusted here.
   */
  NICSTRIPE_UNTRUSTED_PEER = 13,
  /**
   * The daemon does not trust the client's key.
   */
  NICSTRIPE_UNTRUSTED = 14,
  /**
   * The other end does not speak the protocol.
   */
  NICSTRIPE_PROTOCOL = 15,
  /**
   * The daemon speaks another version of the protocol.
   */
  NICSTRIPE_VERSION = 16,
  /**
   * The daemon does not support the request.
   */
  NICSTRIPE_UNSUPPORTED = 17,
  /**
   * The daemon refused the session.
   */
  NICSTRIPE_REFUSED = 18,
  /**
   * The daemon has reached its session limit.
   */
  NICSTRIPE_FULL = 19,
  /**
   * The request failed at the daemon, for the reason in `fail`.
   */
  NICSTRIPE_PEER = 20,
  /**
   * The call was interrupted, or the transfer cancelled.
   */
  NICSTRIPE_CANCELLED = 21,
  /**
   * The daemon could not connect to the target of a tunnel.
   */
  NICSTRIPE_TARGET = 22,
  /**
   * The daemon could not listen.
   */
  NICSTRIPE_LISTEN = 23,
  /**
   * An operation on a local file failed, for the reason in `fail`.
   */
  NICSTRIPE_FILE = 24,
  /**
   * A name is not valid: absolute, with `..`, empty or too long.
   */
  NICSTRIPE_NAME = 25,
  /**
   * The received bytes differed from the sent ones, twice.
   */
  NICSTRIPE_DIGEST = 26,
  /**
   * The operating system refused an operation.
   */
  NICSTRIPE_SYSTEM = 27,
  /**
   * The session ended before the call was complete.
   */
  NICSTRIPE_ENDED = 28,
  /**
   * The call was not done within its time.
   */
  NICSTRIPE_TIMED_OUT = 29,
  /**
   * The content of a file is not what the daemon received.
   */
  NICSTRIPE_DAMAGED = 30,
  /**
   * A required pointer is NULL.
   */
  NICSTRIPE_NULL = -1,
  /**
   * Another thread is in a call with the same reader, writer, listing or transfer.
   */
  NICSTRIPE_IN_USE = -2,
  /**
   * A function of the library panicked: a defect of nicstripe.
   */
  NICSTRIPE_PANIC = -3,
  /**
   * An argument is not valid.
   */
  NICSTRIPE_ARGUMENT = -4,
  /**
   * The files of this machine's key or of its peers cannot be read.
   */
  NICSTRIPE_HOME = -5,
  /**
   * The writer or transfer has ended, by a call before: it was finished, or that call failed.
   */
  NICSTRIPE_FINISHED = -6,
} nicstripe_code;

/**
 * Kind of failure at a file, of either machine: the field `fail` of an error.
 */
typedef enum nicstripe_fail {
  /**
   * The error is not about a file.
   */
  NICSTRIPE_FAIL_NONE = -1,
  /**
   * The name, a permission or a limit does not allow it.
   */
  NICSTRIPE_FAIL_REFUSED = 0,
  /**
   * The file or directory does not exist.
   */
  NICSTRIPE_FAIL_NOT_FOUND = 1,
  /**
   * The name exists, and NICSTRIPE_REPLACE was not set.
   */
  NICSTRIPE_FAIL_EXISTS = 2,
  /**
   * A read, write or sync failed.
   */
  NICSTRIPE_FAIL_IO = 3,
  /**
   * The disk is full.
   */
  NICSTRIPE_FAIL_NO_SPACE = 4,
  /**
   * The source changed during the read.
   */
  NICSTRIPE_FAIL_SOURCE_CHANGED = 5,
  /**
   * The received data is wrong.
   */
  NICSTRIPE_FAIL_DIGEST = 6,
  /**
   * Another transfer is writing the same name.
   */
  NICSTRIPE_FAIL_BUSY = 7,
  /**
   * The other end cancelled the transfer.
   */
  NICSTRIPE_FAIL_CANCELLED = 8,
  /**
   * The other end violated the protocol.
   */
  NICSTRIPE_FAIL_PROTOCOL = 9,
  /**
   * Not a regular file.
   */
  NICSTRIPE_FAIL_NOT_A_FILE = 10,
  /**
   * The rights that the daemon grants do not permit it.
   */
  NICSTRIPE_FAIL_NOT_PERMITTED = 11,
  /**
   * Something that is no regular file has the name, and is not replaced.
   */
  NICSTRIPE_FAIL_OCCUPIED = 12,
  /**
   * The range begins past the end of the file.
   */
  NICSTRIPE_FAIL_RANGE = 13,
  /**
   * The file has not the entity tag `only_if`.
   */
  NICSTRIPE_FAIL_PRECONDITION = 14,
  /**
   * A file has the name where a directory is needed.
   */
  NICSTRIPE_FAIL_NOT_A_DIRECTORY = 15,
} nicstripe_fail;

/**
 * Flags of nicstripe_copy_options. A function rejects flags that it does not have with
 * NICSTRIPE_ARGUMENT.
 */
typedef enum nicstripe_flag {
  /**
   * Replace an existing file.
   */
  NICSTRIPE_REPLACE = 1,
  /**
   * Create missing parent directories.
   */
  NICSTRIPE_PARENTS = 2,
  /**
   * Preserve permission bits and modification time.
   */
  NICSTRIPE_PRESERVE = 4,
  /**
   * Read the data back from the disk and compare its hash before the file gets its name.
   */
  NICSTRIPE_VERIFY = 8,
  /**
   * Discard the data of an interrupted attempt.
   */
  NICSTRIPE_RESTART = 16,
  /**
   * Send only the chunks that differ from the existing file. Implies NICSTRIPE_REPLACE.
   */
  NICSTRIPE_DELTA = 32,
  /**
   * Compress chunks if that increases the rate.
   */
  NICSTRIPE_COMPRESS = 64,
  /**
   * Do not fail if the source changes while it is read.
   */
  NICSTRIPE_ALLOW_CHANGING = 128,
  /**
   * Trees: copy directories recursively.
   */
  NICSTRIPE_RECURSIVE = 65536,
  /**
   * Trees: preserve owners and groups.
   */
  NICSTRIPE_OWNERS = 131072,
  /**
   * Trees: preserve extended attributes and ACLs.
   */
  NICSTRIPE_XATTRS = 262144,
  /**
   * Trees: preserve hard links.
   */
  NICSTRIPE_HARD_LINKS = 524288,
  /**
   * Trees: delete files at the target that the source does not have.
   */
  NICSTRIPE_DELETE = 1048576,
  /**
   * Trees: copy a single source to the target's name itself instead of into it.
   */
  NICSTRIPE_AS_NAME = 2097152,
  /**
   * Trees: stay on the file system of each source.
   */
  NICSTRIPE_ONE_FILE_SYSTEM = 4194304,
} nicstripe_flag;

/**
 * Kind of a name at the daemon.
 */
typedef enum nicstripe_kind {
  /**
   * Regular file.
   */
  NICSTRIPE_KIND_FILE = 1,
  /**
   * Directory.
   */
  NICSTRIPE_KIND_DIRECTORY = 2,
  /**
   * Symbolic link, device or another kind.
   */
  NICSTRIPE_KIND_OTHER = 3,
} nicstripe_kind;

/**
 * Client of one daemon. Any number of threads may use it at once. nicstripe_client_free must be the
 * last call with it.
 */
typedef struct nicstripe_client nicstripe_client;

/**
 * Listing of a directory. One thread may be in a call with it at a time.
 */
typedef struct nicstripe_entries nicstripe_entries;

/**
 * Links of a session at one moment. Never changes, so that any number of threads may read it.
 */
typedef struct nicstripe_link_list nicstripe_link_list;

/**
 * Open file at the daemon. All reads are of one content, also if the file is replaced meanwhile.
 * One thread may be in a call with it at a time.
 */
typedef struct nicstripe_reader nicstripe_reader;

/**
 * Running copy of a file or a tree. It runs whether or not a thread waits for it. One thread may
 * wait at a time; nicstripe_transfer_progress and nicstripe_transfer_cancel are for any thread.
 */
typedef struct nicstripe_transfer nicstripe_transfer;

/**
 * File at the daemon that is being written. It gets its name when it is finished. One thread may be
 * in a call with it at a time.
 */
typedef struct nicstripe_writer nicstripe_writer;

/**
 * Metadata of a name at the daemon.
 */
typedef struct nicstripe_metadata {
  /**
   * Size of a file in bytes; meaningless for other kinds.
   */
  uint64_t size;
  /**
   * Modification time in ns since 1970; negative before.
   */
  int64_t modified_ns;
  /**
   * A nicstripe_kind.
   */
  int32_t kind;
  /**
   * Entity tag, 32 hexadecimal digits; "" if unknown. It changes with the content.
   */
  char etag[33];
  /**
   * BLAKE3 hash of the content, 64 hexadecimal digits; "" if the daemon does not know it.
   */
  char digest[65];
} nicstripe_metadata;

/**
 * Entry of a listing.
 */
typedef struct nicstripe_entry {
  /**
   * Name relative to the listed directory, bytes with `/` between components; NULL at the end of
   * the listing. The listing owns it: it is valid until the next call with the listing.
   */
  const char *name;
  /**
   * Metadata; unset at the end of the listing.
   */
  struct nicstripe_metadata metadata;
} nicstripe_entry;

/**
 * Error of a call. Free with nicstripe_error_free. Texts are UTF-8, live as long as the error, and
 * are never NULL.
 */
typedef struct nicstripe_error {
  /**
   * The nicstripe_code that the function returned.
   */
  int32_t code;
  /**
   * A nicstripe_fail; NICSTRIPE_FAIL_NONE (-1) if the error is not about a file.
   */
  int32_t fail;
  /**
   * Exit code of the command `nicstripe` for this error.
   */
  int32_t exit_code;
  /**
   * True if the same call may succeed later without any change.
   */
  bool is_retryable;
  /**
   * True if repeating the transfer resumes.
   */
  bool is_resumable;
  /**
   * Stable identifier of `code`, such as "timed_out".
   */
  const char* word;
  /**
   * Who must act: "caller", "machine", "peer", "network" or "defect".
   */
  const char* actor;
  /**
   * Message with its causes, in English, for people.
   */
  const char* text;
} nicstripe_error;

/**
 * Bytes that a struct of the library owns. A NUL follows them.
 */
typedef struct nicstripe_bytes {
  /**
   * The bytes; never NULL.
   */
  const uint8_t *bytes;
  /**
   * Number of bytes without the NUL.
   */
  size_t len;
} nicstripe_bytes;

/**
 * Result of a command. Free with nicstripe_output_free.
 */
typedef struct nicstripe_output {
  /**
   * Exit code, 0 to 255; -1 if a signal killed the command.
   */
  int32_t exit_code;
  /**
   * Number of the signal that killed the command; 0 if it exited.
   */
  int32_t signal;
  /**
   * Standard output.
   */
  struct nicstripe_bytes out;
  /**
   * Standard error.
   */
  struct nicstripe_bytes err;
} nicstripe_output;

/**
 * Link of a session. The list owns the texts, which are never NULL.
 */
typedef struct nicstripe_link {
  /**
   * Name of the local interface.
   */
  const char *interface;
  /**
   * Name of the daemon's interface; "" if unknown.
   */
  const char *peer_interface;
  /**
   * Local address; "" if unknown.
   */
  const char *local;
  /**
   * Remote address.
   */
  const char *remote;
  /**
   * "connecting", "up", "suspect", "down" or "left_out".
   */
  const char *state;
  /**
   * Line rate of the slower end in bit/s; 0 if unknown.
   */
  uint64_t line_rate;
  /**
   * Theoretical goodput towards the daemon in bit/s; 0 if unknown.
   */
  uint64_t theory;
  /**
   * Number of TCP connections.
   */
  uint32_t streams;
} nicstripe_link;

/**
 * Result of a file or a tree that was copied or written. It is durable.
 */
typedef struct nicstripe_report {
  /**
   * Size of the file, or of all files of a tree, in bytes.
   */
  uint64_t size;
  /**
   * Payload bytes sent.
   */
  uint64_t wire_bytes;
  /**
   * Bytes of earlier attempts.
   */
  uint64_t resumed_bytes;
  /**
   * Bytes of chunks that were retransmitted.
   */
  uint64_t resent_bytes;
  /**
   * Time from the call until the end in ns.
   */
  uint64_t elapsed_ns;
  /**
   * Tree: files copied.
   */
  uint64_t files;
  /**
   * Tree: files, symbolic links and hard links that were unchanged at the target.
   */
  uint64_t unchanged;
  /**
   * Tree: files and directories deleted at the target.
   */
  uint64_t deleted;
  /**
   * Tree: entries that failed. They do not fail the transfer; see nicstripe_transfer_failure.
   */
  uint64_t failed;
  /**
   * Number of times a connected link was lost.
   */
  uint32_t failovers;
  /**
   * Entity tag of the written file, 32 hexadecimal digits; "" for a tree or if unknown.
   */
  char etag[33];
  /**
   * BLAKE3 hash of the file, 64 hexadecimal digits; "" for a tree.
   */
  char digest[65];
} nicstripe_report;

/**
 * Progress of a transfer.
 */
typedef struct nicstripe_progress {
  /**
   * Bytes at the receiver, including those of earlier attempts.
   */
  uint64_t bytes;
  /**
   * Size in bytes; for a tree, of the files found so far; 0 if unknown.
   */
  uint64_t size;
  /**
   * Bytes of earlier attempts.
   */
  uint64_t resumed;
  /**
   * Goodput in bit/s, averaged over about one second.
   */
  uint64_t bits_per_second;
  /**
   * Tree: files that are complete.
   */
  uint64_t files_done;
  /**
   * Tree: files that were found so far.
   */
  uint64_t files_found;
  /**
   * Number of links that are up.
   */
  uint32_t links_up;
  /**
   * True if `size` can still grow.
   */
  bool is_open;
} nicstripe_progress;

/**
 * Options of nicstripe_connect. Set `size` to `sizeof(nicstripe_connect_options)`, and each field
 * that is not named to 0, as C does with `{ .size = sizeof options }`. Further fields may come.
 */
typedef struct nicstripe_connect_options {
  /**
   * Size of the struct in bytes.
   */
  size_t size;
  /**
   * Directory with this machine's key and the trusted peers. NULL for the one of the command
   * `nicstripe`: NICSTRIPE_HOME, or the user's.
   */
  const char* home;
  /**
   * Links to use, each "LOCAL" or "LOCAL=REMOTE", an interface or an address. NULL to find them.
   */
  const char *const* links;
  /**
   * Number of `links`.
   */
  size_t links_count;
  /**
   * Maximum time in ms that a call waits without any link; 0 for 10 minutes.
   */
  uint64_t patience_ms;
  /**
   * Maximum time in ms of each call, from nicstripe_connect on; 0 for no limit.
   */
  uint64_t timeout_ms;
  /**
   * Rate limit of all links together in bit/s; 0 for none.
   */
  uint64_t bits_per_second;
  /**
   * TCP port of the daemon; 0 for 7747.
   */
  uint16_t port;
  /**
   * Connections per link, 1 to 16; 0 for the default.
   */
  uint8_t streams;
} nicstripe_connect_options;

/**
 * Options of what writes a file, here or at the daemon. A NULL pointer stands for the defaults,
 * which replace nothing. Set `size` to `sizeof(nicstripe_copy_options)`, and each field that is not
 * named to 0, as C does with `{ .size = sizeof options }`. Further fields may come.
 */
typedef struct nicstripe_copy_options {
  /**
   * Size of the struct in bytes.
   */
  size_t size;
  /**
   * Sum of nicstripe_flag values.
   */
  uint64_t flags;
  /**
   * Replace or move the file only if it has this entity tag: the `etag` of a
   * nicstripe_metadata. NULL for any. Not for trees.
   */
  const char* only_if;
  /**
   * Exclude filters of a tree in the syntax of gitignore(5), UTF-8; NULL for none.
   */
  const char *const* filters;
  /**
   * Number of `filters`.
   */
  size_t filters_count;
} nicstripe_copy_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the version of the library, such as "0.1.0". Static text.
 */
const char *nicstripe_version(void);

/**
 * Connects to a daemon, and stores a client in `client`.
 *
 * `host` is a name or an address, UTF-8. `options` may be NULL. Waits until the daemon has answered
 * and has capacity; see `patience_ms`.
 */
int32_t nicstripe_connect(const char* host,
                          const nicstripe_connect_options* options,
                          struct nicstripe_client **client,
                          nicstripe_error** error);

/**
 * Stores another client of the same session in `clone`, to be freed by itself. Each of its calls
 * ends with NICSTRIPE_TIMED_OUT after `timeout_ms`, or never by itself if that is 0. It is
 * interrupted by itself, too.
 */
int32_t nicstripe_client_clone(const struct nicstripe_client *client,
                               uint64_t timeout_ms,
                               struct nicstripe_client **clone,
                               nicstripe_error** error);

/**
 * Ends the running calls of this client, and of the values that it made, with NICSTRIPE_CANCELLED;
 * so end all later ones. Clones are not affected. Does not block, and may be called by any thread, but not by
 * a signal handler.
 */
int32_t nicstripe_client_interrupt(const struct nicstripe_client *client, nicstripe_error** error);

/**
 * Closes the session. Later calls of this client, its clones and their values end with
 * NICSTRIPE_CLOSED. Running transfers are interrupted and can be resumed. Waits at most
 * 10 s.
 */
int32_t nicstripe_close(const struct nicstripe_client *client, nicstripe_error** error);

/**
 * Frees a client; NULL is allowed. Readers, writers, listings and transfers stay valid. The last of
 * them ends the session and its threads at once, without what nicstripe_close waits for.
 */
void nicstripe_client_free(struct nicstripe_client *client);

/**
 * Creates a directory and its missing parents. No error if it exists.
 */
int32_t nicstripe_make_dir(const struct nicstripe_client *client, const char* name, nicstripe_error** error);

/**
 * Removes a file or an empty directory, durably.
 */
int32_t nicstripe_remove(const struct nicstripe_client *client, const char* name, nicstripe_error** error);

/**
 * Renames a file or directory. `options` may be NULL; NICSTRIPE_REPLACE, NICSTRIPE_PARENTS and
 * `only_if` apply.
 */
int32_t nicstripe_rename(const struct nicstripe_client *client,
                         const char* from,
                         const char* to,
                         const nicstripe_copy_options* options,
                         nicstripe_error** error);

/**
 * Copies a file at the daemon; no data crosses the links. `options` is as for nicstripe_rename.
 * Stores the metadata of the copy in `metadata`, which may be NULL.
 */
int32_t nicstripe_copy(const struct nicstripe_client *client,
                       const char* from,
                       const char* to,
                       const nicstripe_copy_options* options,
                       struct nicstripe_metadata *metadata,
                       nicstripe_error** error);

/**
 * Stores the metadata of a file or directory in `metadata`.
 */
int32_t nicstripe_stat(const struct nicstripe_client *client,
                       const char* name,
                       struct nicstripe_metadata *metadata,
                       nicstripe_error** error);

/**
 * Reads a file at the daemon, compares its hash with the one that the daemon kept when it received
 * the file, and stores its metadata in `metadata`, which may be NULL. NICSTRIPE_DAMAGED if they
 * differ. No data crosses the links.
 */
int32_t nicstripe_verify(const struct nicstripe_client *client,
                         const char* name,
                         struct nicstripe_metadata *metadata,
                         nicstripe_error** error);

/**
 * Begins the listing of a directory, and stores it in `entries`. `dir` may be NULL, for the root.
 * Names come in the order of their bytes.
 */
int32_t nicstripe_list(const struct nicstripe_client *client,
                       const char* dir,
                       struct nicstripe_entries **entries,
                       nicstripe_error** error);

/**
 * Begins the listing of a directory and those below it, like nicstripe_list. If `after` is not NULL,
 * it begins behind that name, relative to `dir`: the last one of an earlier listing.
 */
int32_t nicstripe_walk(const struct nicstripe_client *client,
                       const char* dir,
                       const char* after,
                       struct nicstripe_entries **entries,
                       nicstripe_error** error);

/**
 * Stores the next entry in `entry`, or a NULL name at the end. A listing ends after an error.
 */
int32_t nicstripe_entries_next(const struct nicstripe_entries *entries,
                               struct nicstripe_entry *entry,
                               nicstripe_error** error);

/**
 * Frees a listing and its last name; NULL is allowed. No thread may be in a call with it.
 */
void nicstripe_entries_free(struct nicstripe_entries *entries);

/**
 * Frees an error; NULL is allowed.
 */
void nicstripe_error_free(struct nicstripe_error *error);

/**
 * Runs a command at the daemon to its end with its whole input, and stores its result in `output`.
 * The daemon must permit the command to this client.
 *
 * `words` are the program and its arguments, `count` of them; no shell interprets them. `input` is
 * `len` bytes for the standard input, and may be NULL if `len` is 0. A command that fails is no
 * error; an output of more than 64 MiB is.
 */
int32_t nicstripe_exec(const struct nicstripe_client *client,
                       const char *const* words,
                       size_t count,
                       const void* input,
                       size_t len,
                       struct nicstripe_output **output,
                       nicstripe_error** error);

/**
 * Frees the result of a command; NULL is allowed.
 */
void nicstripe_output_free(struct nicstripe_output *output);

/**
 * Stores the links of the session in `links`, and their number in `count`, which may be NULL. Waits
 * at most 2 s for links that are still connecting.
 */
int32_t nicstripe_links(const struct nicstripe_client *client,
                        struct nicstripe_link_list **links,
                        size_t *count,
                        nicstripe_error** error);

/**
 * Stores a link in `link`; `index` is less than the count.
 */
int32_t nicstripe_links_at(const struct nicstripe_link_list *links,
                           size_t index,
                           struct nicstripe_link *link,
                           nicstripe_error** error);

/**
 * Frees a list of links and its texts; NULL is allowed.
 */
void nicstripe_links_free(struct nicstripe_link_list *links);

/**
 * Reads at most `len` bytes of a file from `offset` on into `buffer`, and stores in `read` how many
 * there were: less than `len` only at the end of the file. Each call opens the file, so that two may
 * read different contents; nicstripe_open reads one. NICSTRIPE_FAIL_RANGE if `offset` is past the
 * end.
 */
int32_t nicstripe_read(const struct nicstripe_client *client,
                       const char* name,
                       uint64_t offset,
                       void* buffer,
                       size_t len,
                       size_t *read,
                       nicstripe_error** error);

/**
 * Writes a file from memory. On success the name has all bytes, durably; otherwise it is as before,
 * except after NICSTRIPE_TIMED_OUT or NICSTRIPE_CANCELLED, when the file may be complete. `options`
 * and `report` may be NULL.
 */
int32_t nicstripe_write(const struct nicstripe_client *client,
                        const char* name,
                        const void* bytes,
                        size_t len,
                        const nicstripe_copy_options* options,
                        struct nicstripe_report *report,
                        nicstripe_error** error);

/**
 * Opens a file, and stores a reader in `reader`.
 */
int32_t nicstripe_open(const struct nicstripe_client *client,
                       const char* name,
                       struct nicstripe_reader **reader,
                       nicstripe_error** error);

/**
 * Stores the metadata of the open file in `metadata`. Its size is the one at the time of opening.
 */
int32_t nicstripe_reader_stat(const struct nicstripe_reader *reader,
                              struct nicstripe_metadata *metadata,
                              nicstripe_error** error);

/**
 * Reads at most `len` bytes from `offset` on into `buffer`, like pread(2), and stores in `read` how
 * many there were: less than `len` only at the end of the file, 0 past it. After an error, `read`
 * is the number of bytes that arrived before it. Ascending reads without gaps are fastest.
 */
int32_t nicstripe_reader_read_at(const struct nicstripe_reader *reader,
                                 uint64_t offset,
                                 void* buffer,
                                 size_t len,
                                 size_t *read,
                                 nicstripe_error** error);

/**
 * Closes and frees a reader; NULL is allowed. No thread may be in a call with it.
 */
void nicstripe_reader_close(struct nicstripe_reader *reader);

/**
 * Sends a file, and stores the transfer in `transfer`. `name` may be NULL, for the file's own name;
 * `options` may be NULL. Repeating the call after an interruption resumes.
 */
int32_t nicstripe_put(const struct nicstripe_client *client,
                      const char* source,
                      const char* name,
                      const nicstripe_copy_options* options,
                      struct nicstripe_transfer **transfer,
                      nicstripe_error** error);

/**
 * Fetches a file to a path on this machine, and stores the transfer in `transfer`. `options` may be
 * NULL.
 */
int32_t nicstripe_get(const struct nicstripe_client *client,
                      const char* name,
                      const char* target,
                      const nicstripe_copy_options* options,
                      struct nicstripe_transfer **transfer,
                      nicstripe_error** error);

/**
 * Sends `count` files and trees into the directory `name`, or into the root if that is NULL, and
 * stores the transfer in `transfer`. Of a source that ends in a slash, only the content is copied.
 */
int32_t nicstripe_put_tree(const struct nicstripe_client *client,
                           const char *const* sources,
                           size_t count,
                           const char* name,
                           const nicstripe_copy_options* options,
                           struct nicstripe_transfer **transfer,
                           nicstripe_error** error);

/**
 * Fetches `count` files and trees into the directory `target`, and stores the transfer in
 * `transfer`. Of a name that ends in a slash, only the content is copied; "/" is the root's.
 */
int32_t nicstripe_get_tree(const struct nicstripe_client *client,
                           const char *const* names,
                           size_t count,
                           const char* target,
                           const nicstripe_copy_options* options,
                           struct nicstripe_transfer **transfer,
                           nicstripe_error** error);

/**
 * Stores the progress in `progress`, at most 0.2 s old while the transfer runs. Does not wait.
 */
int32_t nicstripe_transfer_progress(const struct nicstripe_transfer *transfer,
                                    struct nicstripe_progress *progress,
                                    nicstripe_error** error);

/**
 * Waits until the transfer ends, at most `timeout_ms`; a negative one stands for the client's limit,
 * and 0 does not wait. On success everything is durable, and the report is in `report`, which may be
 * NULL. NICSTRIPE_TIMED_OUT and NICSTRIPE_CANCELLED by nicstripe_client_interrupt end the wait and
 * not the transfer: wait again, or cancel it.
 */
int32_t nicstripe_transfer_wait(const struct nicstripe_transfer *transfer,
                                int64_t timeout_ms,
                                struct nicstripe_report *report,
                                nicstripe_error** error);

/**
 * Stores name and message of an entry of a tree that failed; `index` counts from 0, and name and text
 * become NULL if there is no such failure. Of the failures in the report, the first 1000 are kept.
 * The transfer owns the texts, which are UTF-8 and escaped. Call after the transfer has ended.
 */
int32_t nicstripe_transfer_failure(const struct nicstripe_transfer *transfer,
                                   size_t index,
                                   const char **name,
                                   const char **text,
                                   nicstripe_error** error);

/**
 * Interrupts the transfer without waiting for its end. Data that has arrived becomes durable, so that
 * repeating the call that began it resumes. A waiting thread gets NICSTRIPE_CANCELLED.
 */
int32_t nicstripe_transfer_cancel(const struct nicstripe_transfer *transfer, nicstripe_error** error);

/**
 * Frees a transfer; NULL is allowed. One that runs is interrupted. No thread may be in a call with
 * it.
 */
void nicstripe_transfer_free(struct nicstripe_transfer *transfer);

/**
 * Begins a file whose length need not be known, and stores a writer in `writer`. `options` may be
 * NULL. Does not wait for the daemon, so that a later call reports that the name exists.
 */
int32_t nicstripe_create(const struct nicstripe_client *client,
                         const char* name,
                         const nicstripe_copy_options* options,
                         struct nicstripe_writer **writer,
                         nicstripe_error** error);

/**
 * Appends all `len` bytes. After an error the file cannot be completed: later calls return
 * NICSTRIPE_FINISHED.
 */
int32_t nicstripe_writer_write(const struct nicstripe_writer *writer,
                               const void* bytes,
                               size_t len,
                               nicstripe_error** error);

/**
 * Completes the file. On success all of it is durable under its name; otherwise the name is as
 * before, except after NICSTRIPE_TIMED_OUT or NICSTRIPE_CANCELLED, when the file may be complete.
 * The writer is still to be freed. `report` may be NULL.
 */
int32_t nicstripe_writer_finish(const struct nicstripe_writer *writer,
                                struct nicstripe_report *report,
                                nicstripe_error** error);

/**
 * Frees a writer; NULL is allowed. One that was not finished leaves nothing at the daemon. No thread
 * may be in a call with it.
 */
void nicstripe_writer_free(struct nicstripe_writer *writer);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* NICSTRIPE_H */
