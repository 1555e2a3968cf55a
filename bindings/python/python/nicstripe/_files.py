"""Python's file objects over readers and writers, and results as those of ``subprocess``."""

import errno
import io
import os
import subprocess
import warnings


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


class _Discarding:
    """End of a file that is written: an exception in its ``with`` block, or nobody who closes it, discards it."""

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.close()
        else:
            self.discard()

    def __del__(self):
        # Nobody said that it is complete.
        if not self.closed:
            warnings.warn(f"{self!r} was not closed, and is discarded", ResourceWarning, stacklevel=2)
            self.discard()


class _Writer(_Discarding, io.RawIOBase):
    """File at the daemon that is written. It appears whole when it is closed, and not after ``discard``.

    Without ``autocommit`` it appears with ``commit``, after it was closed.
    """

    def __init__(self, writer, name, autocommit=True):
        self._writer = writer
        self._commits = autocommit
        self.name = name
        self.mode = "wb"
        self.report = None
        # Not by a method in Python: a signal that is handled there, behind the write, would make the buffer
        # above write again what was written.
        self.write = writer.write

    def writable(self):
        return True

    def tell(self):
        self._checkClosed()
        return self._writer.tell()

    def discard(self):
        """Drops what was written; the name does not change."""
        self._writer.discard()
        super().close()

    def commit(self):
        """Completes a file that was opened without ``autocommit``."""
        self.report = self._writer.finish()

    def close(self):
        if self.closed:
            return
        try:
            if self._commits:
                self.commit()
        finally:
            super().close()


class _Compressing(io.RawIOBase):
    """Compressor over a file that is written, which ends with it."""

    def __init__(self, compressor, file):
        self._compressor, self._file = compressor, file
        self.write = compressor.write

    def writable(self):
        return True

    @property
    def report(self):
        return self._file.report

    def commit(self):
        self._file.commit()

    def discard(self):
        self._file.discard()
        super().close()

    def close(self):
        if self.closed:
            return
        try:
            self._compressor.close()
        except BaseException:
            self._file.discard()
            raise
        finally:
            super().close()
        self._file.close()


class _Layer(_Discarding):
    """Layer with a buffer over a file that is written."""

    def _beneath(self):
        raise NotImplementedError

    @property
    def report(self):
        """Report of the transfer, after ``close``."""
        return self._beneath().report

    def commit(self):
        """Completes a file that was opened without ``autocommit``."""
        self._beneath().commit()

    def discard(self):
        """Drops what was written; the name does not change."""
        self._beneath().discard()

    def close(self):
        if self._beneath().closed:
            return
        try:
            self.flush()
        except BaseException:
            # What is in the buffer could not be sent: the rest is not the file.
            self.discard()
            raise
        super().close()


class _BufferedWriter(_Layer, io.BufferedWriter):
    """Buffer over a file that is written."""

    def _beneath(self):
        return self.raw


class _TextWriter(_Layer, io.TextIOWrapper):
    """Text over a file that is written."""

    def _beneath(self):
        return self.buffer


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
    autocommit = options.pop("autocommit", True)
    options["replace"] = kind == "w" and options.get("replace", True)
    raw = _Writer(client.open_writer(name, **options), name, autocommit)
    file = _BufferedWriter(raw, size) if size else raw
    return _TextWriter(file, *text) if is_text else file


def compressing(compressor, file):
    """Returns a file that is written through a compressor, and that ends both."""
    return _BufferedWriter(_Compressing(compressor, file), _BUFFER)


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
