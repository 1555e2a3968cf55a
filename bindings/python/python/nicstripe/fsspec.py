"""A daemon as a file system of fsspec: ``nicstripe://nas/data/x.parquet``.

Storage options are the settings of :class:`nicstripe.Client`. Instances of one host with the same options
share a session. One that is unpickled in another process, or used after a fork, connects anew.
"""

import datetime
import errno
import io
import os
import re
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

from fsspec.spec import AbstractFileSystem
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.compression import compr
from fsspec.utils import infer_compression

from ._files import _TextWriter, compressing
from ._errors import Error
from ._nicstripe import Client

#: Requests of one call that run at the same time; a client has 64 at most.
_AT_ONCE = 16

_URL = re.compile(r"nicstripe://(?:\[([^]]+)]|([^:/]+))(?::(\d+))?(?:/|$)")


class NicstripeFileSystem(AbstractFileSystem):
    """Files at a nicstripe daemon, over every cable that leads there.

    Files are atomic: a written file appears whole when it is closed. Listings are not cached, because other
    programs change the daemon's files. Missing parent directories are created.
    """

    protocol = "nicstripe"
    root_marker = ""
    cachable = True

    def __init__(self, host="localhost", port=None, **settings):
        super().__init__(host=host, port=port, **settings)
        for own in _OWN_OPTIONS:
            settings.pop(own, None)
        self._host = host
        self._settings = dict(settings, port=port)
        self._client = None

    @property
    def client(self):
        """Client beneath, which is connected when it is needed, and again after ``close`` or a fork."""
        client = self._client
        if client is None or client.closed:
            self._client = client = _shared(self._host, self._settings)
        return client

    @property
    def fsid(self):
        return f"nicstripe-{self._host}-{self._settings['port'] or 7747}"

    def close(self):
        """Closes the session, also for other instances; the next call opens another."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    @classmethod
    def _strip_protocol(cls, path):
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = os.fspath(path)
        if path.startswith("nicstripe://"):
            path = path[len("nicstripe://"):].partition("/")[2]
        return path.strip("/")

    def unstrip_protocol(self, name):
        host = f"[{self._host}]" if ":" in self._host else self._host
        port = f":{self._settings['port']}" if self._settings["port"] else ""
        return f"nicstripe://{host}{port}/{self._strip_protocol(name)}"

    @staticmethod
    def _get_kwargs_from_urls(path):
        found = _URL.match(path)
        if found is None:
            return {}
        v6, host, port = found.groups()
        return {"host": v6 or host, **({"port": int(port)} if port else {})}

    # Names

    def _entry(self, path, stat):
        kind = {"file": "file", "dir": "directory"}.get(stat.kind, "other")
        entry = {"name": path, "size": stat.size if stat.is_file else 0, "type": kind}
        entry["mtime"] = stat.modified
        if stat.etag is not None:
            entry["ETag"] = stat.etag
        if stat.digest is not None:
            entry["blake3"] = stat.digest
        return entry

    def info(self, path, **kwargs):
        path = self._strip_protocol(path)
        if not path:
            return {"name": "", "size": 0, "type": "directory"}
        return self._entry(path, self.client.stat(path))

    def _info_or_none(self, path):
        # Only what does not exist is told from an error, unlike in the base class.
        try:
            return self.info(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def exists(self, path, **kwargs):
        return self._info_or_none(path) is not None

    def isfile(self, path):
        info = self._info_or_none(path)
        return info is not None and info["type"] == "file"

    def isdir(self, path):
        info = self._info_or_none(path)
        return info is not None and info["type"] == "directory"

    def walk(self, path, maxdepth=None, topdown=True, on_error="omit", **kwargs):
        if on_error == "omit":
            on_error = _omit_missing
        return super().walk(path, maxdepth=maxdepth, topdown=topdown, on_error=on_error, **kwargs)

    def ls(self, path, detail=True, **kwargs):
        path = self._strip_protocol(path)
        try:
            stats = self.client.list(path)
        except NotADirectoryError:
            entries = [self.info(path)]
        else:
            prefix = path + "/" if path else ""
            entries = [self._entry(prefix + stat.name, stat) for stat in stats]
        return entries if detail else [entry["name"] for entry in entries]

    def find(self, path, maxdepth=None, withdirs=False, detail=False, **kwargs):
        path = self._strip_protocol(path)
        if maxdepth is not None or kwargs:
            return super().find(path, maxdepth, withdirs, detail, **kwargs)
        # One walk at the daemon instead of a listing a directory.
        found, prefix = {}, path + "/" if path else ""
        try:
            if withdirs and path:
                found[path] = self.info(path)
            for stat in self.client.walk(path):
                if withdirs or not stat.is_dir:
                    found[prefix + stat.name] = self._entry(prefix + stat.name, stat)
        except FileNotFoundError:
            pass
        except NotADirectoryError:
            found[path] = self.info(path)
        return {name: found[name] for name in sorted(found)} if detail else sorted(found)

    def created(self, path):
        raise NotImplementedError("the daemon tells no time of creation")

    def modified(self, path):
        modified = self.client.stat(self._strip_protocol(path)).modified
        return datetime.datetime.fromtimestamp(modified, datetime.timezone.utc)

    def checksum(self, path):
        info = self.info(path)
        return info.get("ETag") or super().checksum(path)

    def ukey(self, path):
        return str(self.checksum(path))

    # Changes

    def mkdir(self, path, create_parents=True, **kwargs):
        path = self._strip_protocol(path)
        if self.exists(path):
            raise FileExistsError(path)
        if not create_parents and not self.isdir(self._parent(path)):
            raise FileNotFoundError(self._parent(path))
        self.client.make_dir(path)

    def makedirs(self, path, exist_ok=False):
        path = self._strip_protocol(path)
        if not exist_ok and self.exists(path):
            raise FileExistsError(path)
        if path:
            self.client.make_dir(path)

    def rmdir(self, path):
        path = self._strip_protocol(path)
        if not self.isdir(path):
            raise NotADirectoryError(path)
        self.client.remove(path)

    def rm_file(self, path):
        self.client.remove(self._strip_protocol(path))

    def rm(self, path, recursive=False, maxdepth=None):
        paths = self.expand_path(path, recursive=recursive, maxdepth=maxdepth)
        # The content of a directory before the directory. The root stays.
        for _, error in self.client.remove_many(sorted(filter(None, paths), reverse=True)):
            raise error

    def mv(self, path1, path2, recursive=False, maxdepth=None, **kwargs):
        if isinstance(path1, str) and isinstance(path2, str):
            source, target = self._strip_protocol(path1), self._strip_protocol(path2)
            if source == target:
                return
            if target.startswith(source + "/") or not source:
                raise ValueError(f"cannot move {path1!r} into itself, to {path2!r}")
            info = self._info_or_none(source)
            is_file = info is not None and info["type"] != "directory"
            if is_file and not path2.endswith("/") and not self.isdir(target):
                self.client.rename(source, target, replace=True, parents=True)
                return
            if info is not None and recursive and maxdepth is None and not self.exists(target):
                self.client.rename(source, target, parents=True)
                return
        super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)

    def cp_file(self, path1, path2, **kwargs):
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(source):
            self.client.make_dir(target)
        else:
            self.client.copy(source, target, replace=True, parents=True)

    # Content

    def open(self, path, mode="rb", block_size=None, cache_options=None, compression=None, **kwargs):
        is_written = mode.startswith(("w", "x"))
        if is_written and "b" not in mode:
            words = {word: kwargs.pop(word) for word in ("encoding", "errors", "newline") if word in kwargs}
            file = self.open(path, mode.replace("t", "") + "b", block_size, cache_options, compression, **kwargs)
            return _TextWriter(file, **words)
        if not is_written or compression is None:
            return super().open(path, mode, block_size, cache_options, compression, **kwargs)
        if compression == "infer":
            compression = infer_compression(self._strip_protocol(path))
        file = self.open(path, mode, block_size, cache_options, **kwargs)
        # That of the base class would not close the file beneath.
        return compressing(compr[compression](file, mode="w"), file) if compression else file

    def _open(self, path, mode="rb", block_size=None, autocommit=True, cache_options=None, **kwargs):
        path = self._strip_protocol(path)
        if mode not in ("rb", "wb", "xb"):
            raise NotImplementedError(f"mode {mode!r}: a file is read, or written as a whole")
        buffering = None if block_size in (None, "default") else int(block_size)
        options = {} if mode == "rb" else {"parents": True, "autocommit": autocommit}
        for cache in ("cache_type", "size"):
            kwargs.pop(cache, None)
        return self.client.open(path, mode, buffering, **options, **kwargs)

    def cat_file(self, path, start=None, end=None, **kwargs):
        return _read(self.client, self._strip_protocol(path), start, end)

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        _write(self.client, self._strip_protocol(path), value, mode)

    def cat_ranges(self, paths, starts, ends, max_gap=None, on_error="return", **kwargs):
        if not isinstance(starts, list):
            starts = [starts] * len(paths)
        if not isinstance(ends, list):
            ends = [ends] * len(paths)
        if not len(paths) == len(starts) == len(ends):
            raise ValueError("expected as many starts and ends as paths")
        ranges = zip(self._strip_protocol(list(paths)), starts, ends)
        read = self._each(_read, list(ranges))
        if on_error == "raise":
            _raise_first(read)
        return read

    def cat(self, path, recursive=False, on_error="raise", start=None, end=None, **kwargs):
        paths = self.expand_path(path, recursive=recursive, **kwargs)
        if len(paths) == 1 and isinstance(path, str) and paths[0] == self._strip_protocol(path):
            return self.cat_file(paths[0], start, end)
        read = dict(zip(paths, self._each(_read, [(name, start, end) for name in paths])))
        if on_error == "raise":
            _raise_first(read.values())
        if on_error == "omit":
            read = {name: data for name, data in read.items() if not isinstance(data, Exception)}
        return read

    def pipe(self, path, value=None, **kwargs):
        if isinstance(path, str):
            return self.pipe_file(path, value, **kwargs)
        mode = kwargs.get("mode", "overwrite")
        items = [(self._strip_protocol(name), data, mode) for name, data in path.items()]
        _raise_first(self._each(_write, items))

    def get_file(self, rpath, lpath, callback=DEFAULT_CALLBACK, outfile=None, **kwargs):
        rpath = self._strip_protocol(rpath)
        if outfile is not None or not isinstance(lpath, (str, os.PathLike)):
            return super().get_file(rpath, lpath, callback=callback, outfile=outfile, **kwargs)
        if self.isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
            return
        if os.path.isdir(lpath):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), lpath)
        os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
        self.client.get(rpath, lpath, replace=True, progress=_telling(callback))

    def put_file(self, lpath, rpath, callback=DEFAULT_CALLBACK, mode="overwrite", **kwargs):
        rpath = self._strip_protocol(rpath)
        if os.path.isdir(lpath):
            self.makedirs(rpath, exist_ok=True)
            return
        replace = mode == "overwrite"
        self.client.put(lpath, rpath, replace=replace, parents=True, progress=_telling(callback))

    def _each(self, call, items):
        """Calls with the client and each item, several at a time. Returns results and exceptions in their order."""
        client, end = self.client.interruptible()

        def one(item):
            try:
                return call(client, *item)
            except Exception as error:
                return error

        if len(items) < 2:
            return [one(item) for item in items]
        with ThreadPoolExecutor(min(_AT_ONCE, len(items)), "nicstripe-fsspec") as pool:
            try:
                return list(pool.map(one, items))
            except BaseException:
                end()
                raise


def _read(client, path, start, end):
    start = start or 0
    if start < 0 or (end is not None and end < 0):
        size = client.stat(path).size
        start = max(0, size + start) if start < 0 else start
        end = max(0, size + end) if end is not None and end < 0 else end
    if end is not None and end <= start:
        return b""
    try:
        return client.read(path, start, end)
    except Error as error:
        # Past the end, as a slice.
        if error.code == "range":
            return b""
        raise


def _write(client, path, value, mode):
    client.write(path, value, parents=True, replace=mode == "overwrite")


def _raise_first(results):
    for result in results:
        if isinstance(result, Exception):
            raise result


def _omit_missing(error):
    """Leaves out directories that vanish, and no others: an incomplete list would look like a whole one."""
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise error


#: Clients of this process by host and settings, as long as a file system uses them.
_clients = weakref.WeakValueDictionary()
_connecting = {}
_lock = threading.Lock()


def _shared(host, settings):
    """Returns the client of a host that has these settings; connects one if there is none."""
    key = repr((host, sorted(settings.items())))
    with _lock:
        connecting = _connecting.setdefault(key, threading.Lock())
    with connecting:
        client = _clients.get(key)
        if client is None or client.closed:
            _clients[key] = client = Client(host, **settings)
        return client


def _forget():
    """Begins anew in a forked child: threads of the parent may have held the locks."""
    global _clients, _connecting, _lock
    _clients, _connecting, _lock = weakref.WeakValueDictionary(), {}, threading.Lock()


os.register_at_fork(after_in_child=_forget)


#: Options of fsspec itself, which a client does not have.
_OWN_OPTIONS = (
    "asynchronous",
    "batch_size",
    "listings_expiry_time",
    "loop",
    "max_paths",
    "skip_instance_cache",
    "use_listings_cache",
)


def _telling(callback):
    """Returns the function that passes progress to a callback of fsspec."""
    if callback is DEFAULT_CALLBACK or callback is None:
        return None

    def told(progress):
        if progress.get("size_bytes") is not None:
            callback.set_size(progress["size_bytes"])
        callback.absolute_update(progress["bytes"])

    return told
