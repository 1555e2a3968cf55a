"""Python's file objects over readers and writers, and results as those of ``subprocess``."""

import errno
import io
import os
import subprocess


class _Reader(io.RawIOBase):
    """File at the daemon that is read, of the content that it had when it was opened: later ones are errors."""

    def __init__(self, reader, name):
        self._reader = reader
        self.name = name
        self.mode = "rb"

    @property
    def etag(self):
        """Entity tag of the content."""
        return self._reader.etag

    @property
    def size(self):
        """Size in bytes."""
        return self._reader.size

    def readable(self):
        return True

    def seekable(self):
        return True

    def readinto(self, into):
        self._checkClosed()
        return self._reader.readinto(into)

    def readall(self):
        left = max(0, self._reader.size - self.tell())
        whole = bytearray(left)
        del whole[self.readinto(whole):]
        return bytes(whole)

    def seek(self, offset, whence=io.SEEK_SET):
        self._checkClosed()
        return self._reader.seek(offset, whence)

    def tell(self):
        self._checkClosed()
        return self._reader.tell()

    def close(self):
        if not self.closed:
            super().close()
            self._reader.close()


class _Writer(io.RawIOBase):
    """File at the daemon that is written. It appears whole when it is closed, and not after ``discard``."""

    def __init__(self, writer, name):
        self._writer = writer
        self._at = 0
        self.name = name
        self.mode = "wb"
        self.report = None

    def writable(self):
        return True

    def tell(self):
        self._checkClosed()
        return self._at

    def write(self, data):
        self._checkClosed()
        written = self._writer.write(data)
        self._at += written
        return written

    def discard(self):
        """Drops what was written; the name does not change."""
        if not self.closed:
            self._writer.discard()
            super().close()

    def close(self):
        if self.closed:
            return
        try:
            self.report = self._writer.finish()
        finally:
            super().close()

    def __del__(self):
        # Nobody said that it is complete.
        try:
            self.discard()
        except Exception:
            pass


class _BufferedWriter(io.BufferedWriter):
    """Like ``io.BufferedWriter``, but an exception in its ``with`` block discards the file."""

    @property
    def report(self):
        """Report of the transfer, after ``close``."""
        return self.raw.report

    def discard(self):
        """Drops what was written; the name does not change."""
        self.raw.discard()

    def close(self):
        if self.raw.closed:
            return
        try:
            super().close()
        except BaseException:
            # What is in the buffer could not be sent: the rest is not the file.
            self.raw.discard()
            raise

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.close()
        else:
            self.discard()

    def __del__(self):
        self.raw.discard()


class _TextWriter(io.TextIOWrapper):
    """Text that is written; an exception in its ``with`` block discards the file."""

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.close()
        else:
            self.buffer.discard()

    def __del__(self):
        self.buffer.discard()


#: Size of a buffer in bytes: that of four chunks on the wire.
_BUFFER = 1 << 20


def open(client, name, mode, buffering, text, **options):
    """Opens a file at the daemon; see ``Client.open``."""
    kind, is_text = mode.replace("b", "").replace("t", ""), "b" not in mode
    if kind not in ("r", "w", "x") or ("b" in mode and "t" in mode) or len(mode) > 2:
        raise ValueError(f"mode {mode!r}: expected 'rb', 'wb', 'xb', 'r', 'w' or 'x'")
    if buffering == 0 and is_text:
        raise ValueError("text needs a buffer")
    if not is_text and any(word is not None for word in text):
        raise ValueError("encoding, errors and newline are for text")
    size = _BUFFER if buffering is None or buffering < 0 else buffering
    if kind == "r":
        raw = _Reader(client.open_reader(name, **options), name)
        file = io.BufferedReader(raw, size) if size else raw
        return io.TextIOWrapper(file, *text) if is_text else file
    if kind == "x":
        _require_absent(client, name)
    options.setdefault("replace", kind == "w")
    raw = _Writer(client.open_writer(name, **options), name)
    file = _BufferedWriter(raw, size) if size else raw
    return _TextWriter(file, *text) if is_text else file


def _require_absent(client, name):
    # Again at the end, by the daemon; but a program expects it here.
    try:
        client.stat(name)
    except FileNotFoundError:
        return
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fsdecode(name))


def completed(args, code, stdout, stderr, text, check):
    """Returns what a command has left; see ``Client.exec``."""
    if text:
        stdout, stderr = stdout.decode(), stderr.decode()
    result = subprocess.CompletedProcess(args, code, stdout, stderr)
    if check:
        result.check_returncode()
    return result
