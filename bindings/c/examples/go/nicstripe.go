package main

// Calls of nicstripe.h with errors, slices and closers of Go.

/*
#cgo pkg-config: nicstripe
#include <nicstripe.h>
#include <stdlib.h>
*/
import "C"

import (
	"io"
	"time"
	"unsafe"
)

// Error of a call, with its stable code.
type Error struct {
	Code, Fail, ExitCode   int
	Word, Actor, Text      string
	IsRetryable, Resumable bool
}

func (e *Error) Error() string { return e.Text }

// failed returns the error that a call has left, and frees it. Nothing is kept per thread, so that
// the goroutine may have moved meanwhile.
func failed(code C.int32_t, e *C.nicstripe_error) error {
	if code == C.NICSTRIPE_OK {
		return nil
	}
	defer C.nicstripe_error_free(e)
	return &Error{
		Code: int(e.code), Fail: int(e.fail), ExitCode: int(e.exit_code),
		Word: C.GoString(e.word), Actor: C.GoString(e.actor), Text: C.GoString(e.text),
		IsRetryable: bool(e.is_retryable), Resumable: bool(e.is_resumable),
	}
}

// texts returns C strings and a function that frees them and all of the C memory.
func texts(words ...string) (**C.char, func()) {
	size := C.size_t(len(words)+1) * C.size_t(unsafe.Sizeof(uintptr(0)))
	array := (**C.char)(C.calloc(1, size))
	all := unsafe.Slice(array, len(words))
	for at, word := range words {
		all[at] = C.CString(word)
	}
	return array, func() {
		for _, word := range all {
			C.free(unsafe.Pointer(word))
		}
		C.free(unsafe.Pointer(array))
	}
}

// text returns a C string, NULL for "".
func text(word string) *C.char {
	if word == "" {
		return nil
	}
	return C.CString(word)
}

func free(text *C.char) { C.free(unsafe.Pointer(text)) }

func options(flags uint64) C.nicstripe_copy_options {
	return C.nicstripe_copy_options{size: C.sizeof_nicstripe_copy_options, flags: C.uint64_t(flags)}
}

// Client of one daemon, for any number of goroutines.
type Client struct{ c *C.nicstripe_client }

func Connect(host string, port uint16, patience time.Duration) (*Client, error) {
	h := C.CString(host)
	defer free(h)
	o := C.nicstripe_connect_options{
		size: C.sizeof_nicstripe_connect_options, port: C.uint16_t(port),
		patience_ms: milliseconds(patience),
	}
	var client *C.nicstripe_client
	var e *C.nicstripe_error
	code := C.nicstripe_connect(h, &o, &client, &e)
	return &Client{client}, failed(code, e)
}

// Clone returns a client whose calls end after a time, or when it is interrupted.
func (c *Client) Clone(most time.Duration) (*Client, error) {
	var clone *C.nicstripe_client
	var e *C.nicstripe_error
	code := C.nicstripe_client_clone(c.c, milliseconds(most), &clone, &e)
	return &Client{clone}, failed(code, e)
}

func (c *Client) Interrupt() error {
	var e *C.nicstripe_error
	code := C.nicstripe_client_interrupt(c.c, &e)
	return failed(code, e)
}

func (c *Client) Free() { C.nicstripe_client_free(c.c) }

// Close ends the session and frees the client.
func (c *Client) Close() error {
	defer c.Free()
	var e *C.nicstripe_error
	code := C.nicstripe_close(c.c, &e)
	return failed(code, e)
}

// Transfer that runs until it ends or is freed.
type Transfer struct{ t *C.nicstripe_transfer }

func (c *Client) Put(source, name string, flags uint64) (*Transfer, error) {
	s, n, o := C.CString(source), text(name), options(flags)
	defer free(s)
	defer free(n)
	var t *C.nicstripe_transfer
	var e *C.nicstripe_error
	code := C.nicstripe_put(c.c, s, n, &o, &t, &e)
	return &Transfer{t}, failed(code, e)
}

func (c *Client) Get(name, target string, flags uint64) (*Transfer, error) {
	n, s, o := C.CString(name), C.CString(target), options(flags)
	defer free(n)
	defer free(s)
	var t *C.nicstripe_transfer
	var e *C.nicstripe_error
	code := C.nicstripe_get(c.c, n, s, &o, &t, &e)
	return &Transfer{t}, failed(code, e)
}

func (c *Client) PutTree(source, name string, flags uint64, filters ...string) (*Transfer, error) {
	sources, freeSources := texts(source)
	defer freeSources()
	n, o := text(name), options(flags)
	defer free(n)
	array, freeFilters := texts(filters...)
	defer freeFilters()
	o.filters, o.filters_count = array, C.size_t(len(filters))
	var t *C.nicstripe_transfer
	var e *C.nicstripe_error
	code := C.nicstripe_put_tree(c.c, sources, 1, n, &o, &t, &e)
	return &Transfer{t}, failed(code, e)
}

func (c *Client) GetTree(name, target string, flags uint64) (*Transfer, error) {
	names, freeNames := texts(name)
	defer freeNames()
	s, o := C.CString(target), options(flags)
	defer free(s)
	var t *C.nicstripe_transfer
	var e *C.nicstripe_error
	code := C.nicstripe_get_tree(c.c, names, 1, s, &o, &t, &e)
	return &Transfer{t}, failed(code, e)
}

// Wait tells the progress until the transfer ends, and frees it. Returns the size.
func (t *Transfer) Wait(progress func(bytes, size uint64)) (uint64, error) {
	defer C.nicstripe_transfer_free(t.t)
	for {
		var report C.nicstripe_report
		var e *C.nicstripe_error
		code := C.nicstripe_transfer_wait(t.t, 200, &report, &e)
		if code != C.NICSTRIPE_TIMED_OUT {
			return uint64(report.size), failed(code, e)
		}
		C.nicstripe_error_free(e)
		var p C.nicstripe_progress
		C.nicstripe_transfer_progress(t.t, &p, nil)
		progress(uint64(p.bytes), uint64(p.size))
	}
}

func (t *Transfer) Cancel() { C.nicstripe_transfer_cancel(t.t, nil) }

// named makes a call that takes one name.
func (c *Client) named(name string, call func(*C.char, **C.nicstripe_error) C.int32_t) error {
	n := C.CString(name)
	defer free(n)
	var e *C.nicstripe_error
	code := call(n, &e)
	return failed(code, e)
}

func (c *Client) MakeDir(name string) error {
	return c.named(name, func(n *C.char, e **C.nicstripe_error) C.int32_t { return C.nicstripe_make_dir(c.c, n, e) })
}

func (c *Client) Remove(name string) error {
	return c.named(name, func(n *C.char, e **C.nicstripe_error) C.int32_t { return C.nicstripe_remove(c.c, n, e) })
}

func (c *Client) Size(name string) (uint64, error) {
	var m C.nicstripe_metadata
	err := c.named(name, func(n *C.char, e **C.nicstripe_error) C.int32_t { return C.nicstripe_stat(c.c, n, &m, e) })
	return uint64(m.size), err
}

func (c *Client) Rename(from, to string, flags uint64) error {
	t, o := C.CString(to), options(flags)
	defer free(t)
	return c.named(from, func(n *C.char, e **C.nicstripe_error) C.int32_t { return C.nicstripe_rename(c.c, n, t, &o, e) })
}

// Write writes a whole file.
func (c *Client) Write(name string, bytes []byte, flags uint64) error {
	o := options(flags)
	return c.named(name, func(n *C.char, e **C.nicstripe_error) C.int32_t {
		return C.nicstripe_write(c.c, n, first(bytes), C.size_t(len(bytes)), &o, nil, e)
	})
}

// ReadAt reads a part of a file.
func (c *Client) ReadAt(name string, offset uint64, into []byte) (int, error) {
	var read C.size_t
	err := c.named(name, func(n *C.char, e **C.nicstripe_error) C.int32_t {
		return C.nicstripe_read(c.c, n, C.uint64_t(offset), first(into), C.size_t(len(into)), &read, e)
	})
	return int(read), err
}

// Writer is an io.Writer; Finish gives the file its name.
type Writer struct{ w *C.nicstripe_writer }

func (c *Client) Create(name string, flags uint64) (*Writer, error) {
	o := options(flags)
	var w *C.nicstripe_writer
	err := c.named(name, func(n *C.char, e **C.nicstripe_error) C.int32_t { return C.nicstripe_create(c.c, n, &o, &w, e) })
	return &Writer{w}, err
}

func (w *Writer) Write(bytes []byte) (int, error) {
	var e *C.nicstripe_error
	code := C.nicstripe_writer_write(w.w, first(bytes), C.size_t(len(bytes)), &e)
	if err := failed(code, e); err != nil {
		return 0, err
	}
	return len(bytes), nil
}

func (w *Writer) Finish() error {
	defer C.nicstripe_writer_free(w.w)
	var e *C.nicstripe_error
	code := C.nicstripe_writer_finish(w.w, nil, &e)
	return failed(code, e)
}

// Reader is an io.ReaderAt of one content, for one goroutine at a time.
type Reader struct {
	r    *C.nicstripe_reader
	Size int64
}

func (c *Client) Open(name string) (*Reader, error) {
	var r *C.nicstripe_reader
	err := c.named(name, func(n *C.char, e **C.nicstripe_error) C.int32_t { return C.nicstripe_open(c.c, n, &r, e) })
	if err != nil {
		return nil, err
	}
	var m C.nicstripe_metadata
	C.nicstripe_reader_stat(r, &m, nil)
	return &Reader{r, int64(m.size)}, nil
}

func (r *Reader) ReadAt(into []byte, offset int64) (int, error) {
	var read C.size_t
	var e *C.nicstripe_error
	code := C.nicstripe_reader_read_at(r.r, C.uint64_t(offset), first(into), C.size_t(len(into)), &read, &e)
	err := failed(code, e)
	if err == nil && int(read) < len(into) {
		err = io.EOF
	}
	return int(read), err
}

func (r *Reader) Close() { C.nicstripe_reader_close(r.r) }

// Walk calls a function for each name below a directory.
func (c *Client) Walk(dir string, isDeep bool, each func(name string, isDir bool)) error {
	d := text(dir)
	defer free(d)
	var entries *C.nicstripe_entries
	var e *C.nicstripe_error
	var code C.int32_t
	if isDeep {
		code = C.nicstripe_walk(c.c, d, nil, &entries, &e)
	} else {
		code = C.nicstripe_list(c.c, d, &entries, &e)
	}
	defer C.nicstripe_entries_free(entries)
	for code == C.NICSTRIPE_OK {
		var entry C.nicstripe_entry
		code = C.nicstripe_entries_next(entries, &entry, &e)
		if code == C.NICSTRIPE_OK && entry.name == nil {
			return nil
		}
		if code == C.NICSTRIPE_OK {
			each(C.GoString(entry.name), entry.metadata.kind == C.NICSTRIPE_KIND_DIRECTORY)
		}
	}
	return failed(code, e)
}

// Exec runs a command with its whole input.
func (c *Client) Exec(input []byte, words ...string) (code int, out, err string, failure error) {
	array, freeWords := texts(words...)
	defer freeWords()
	var o *C.nicstripe_output
	var e *C.nicstripe_error
	returned := C.nicstripe_exec(c.c, array, C.size_t(len(words)), first(input), C.size_t(len(input)), &o, &e)
	if failure = failed(returned, e); failure != nil {
		return
	}
	defer C.nicstripe_output_free(o)
	return int(o.exit_code), bytes(o.out), bytes(o.err), nil
}

func bytes(b C.nicstripe_bytes) string {
	return C.GoStringN((*C.char)(unsafe.Pointer(b.bytes)), C.int(b.len))
}

func Version() string { return C.GoString(C.nicstripe_version()) }

const (
	Replace   = C.NICSTRIPE_REPLACE
	Parents   = C.NICSTRIPE_PARENTS
	Recursive = C.NICSTRIPE_RECURSIVE
	AsName    = C.NICSTRIPE_AS_NAME
	Cancelled = C.NICSTRIPE_CANCELLED
	NotFound  = C.NICSTRIPE_FAIL_NOT_FOUND
)

// first returns the address of the first byte, nil of an empty slice.
func first(bytes []byte) unsafe.Pointer {
	if len(bytes) == 0 {
		return nil
	}
	return unsafe.Pointer(&bytes[0])
}

// milliseconds rounds up: 0 stands for no limit.
func milliseconds(d time.Duration) C.uint64_t {
	return C.uint64_t((d + time.Millisecond - 1) / time.Millisecond)
}
