"""A daemon as a file system of fsspec: ``nicstripe://nas/data/x.parquet``.

Storage options are the settings of :class:`nicstripe.Client`. Instances of one host with the same options
share a session, also after unpickling in another process, which connects anew.
"""

import datetime
import os
import threading
from concurrent.futures import ThreadPoolExecutor

from fsspec.spec import AbstractFileSystem
from fsspec.utils import infer_storage_options

from ._nicstripe import Client

#: Requests of one call that run at the same time; a client has 64 at most.
_AT_ONCE = 16


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
        self._connecting = threading.Lock()
        self._connected = None
        self._process = None

    @property
    def client(self):
        """Client beneath, which is connected when it is needed, and again after a fork."""
        if self._process != os.getpid():
            # A lock of the parent may be held for ever.
            self._connecting = threading.Lock()
            self._connected, self._process = None, os.getpid()
        with self._connecting:
            if self._connected is None:
                self._connected = Client(self._host, **self._settings)
            return self._connected

    @property
    def fsid(self):
        return f"nicstripe-{self._host}-{self._settings['port'] or 7747}"

    def close(self):
        """Closes the session; the next call opens another."""
        client, self._connected = self._connected, None
        if client is not None and self._process == os.getpid():
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
        port = f":{self._settings['port']}" if self._settings["port"] else ""
        return f"nicstripe://{self._host}{port}/{self._strip_protocol(name)}"

    @staticmethod
    def _get_kwargs_from_urls(path):
        options = infer_storage_options(path)
        return {key: options[key] for key in ("host", "port") if options.get(key)}

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
        # The content of a directory before the directory.
        for name, error in self.client.remove_many(sorted(paths, reverse=True)):
            raise error

    def mv(self, path1, path2, recursive=False, maxdepth=None, **kwargs):
        if isinstance(path1, str) and isinstance(path2, str) and maxdepth is None:
            source, target = self._strip_protocol(path1), self._strip_protocol(path2)
            if self.isfile(source) and not path2.endswith("/") and not self.isdir(target):
                if source != target:
                    self.client.rename(source, target, replace=True, parents=True)
                return
        super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)

    def cp_file(self, path1, path2, **kwargs):
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(source):
            self.client.make_dir(target)
        else:
            self.client.copy(source, target, replace=True, parents=True)

    # Content

    def _open(self, path, mode="rb", block_size=None, cache_options=None, **kwargs):
        path = self._strip_protocol(path)
        if mode not in ("rb", "wb", "xb"):
            raise NotImplementedError(f"mode {mode!r}: a file is read, or written as a whole")
        buffering = None if block_size in (None, "default") else int(block_size)
        options = {} if mode == "rb" else {"parents": True}
        for cache in ("autocommit", "cache_type", "size"):
            kwargs.pop(cache, None)
        return self.client.open(path, mode, buffering, **options, **kwargs)

    def cat_file(self, path, start=None, end=None, **kwargs):
        path = self._strip_protocol(path)
        if (start or 0) < 0 or (end is not None and end < 0):
            size = self.client.stat(path).size
            start = max(0, size + start) if (start or 0) < 0 else start
            end = max(0, size + end) if end is not None and end < 0 else end
        start = start or 0
        if end is not None and end <= start:
            return b""
        return self.client.read(path, start, end)

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        replace = mode == "overwrite"
        self.client.write(self._strip_protocol(path), value, parents=True, replace=replace)

    def cat_ranges(self, paths, starts, ends, max_gap=None, on_error="return", **kwargs):
        if not isinstance(starts, list):
            starts = [starts] * len(paths)
        if not isinstance(ends, list):
            ends = [ends] * len(paths)
        if not len(paths) == len(starts) == len(ends):
            raise ValueError("expected as many starts and ends as paths")
        ranges = list(zip(paths, starts, ends))
        read = self._each(lambda one: self.cat_file(*one), ranges)
        for error in read:
            if isinstance(error, Exception) and on_error == "raise":
                raise error
        return read

    def cat(self, path, recursive=False, on_error="raise", **kwargs):
        paths = self.expand_path(path, recursive=recursive, **kwargs)
        if len(paths) == 1 and isinstance(path, str) and paths[0] == self._strip_protocol(path):
            return self.cat_file(paths[0])
        read = dict(zip(paths, self._each(self.cat_file, paths)))
        errors = [error for error in read.values() if isinstance(error, Exception)]
        if errors and on_error == "raise":
            raise errors[0]
        if on_error == "omit":
            read = {name: data for name, data in read.items() if not isinstance(data, Exception)}
        return read

    def pipe(self, path, value=None, **kwargs):
        if isinstance(path, str):
            return self.pipe_file(path, value, **kwargs)
        written = self._each(lambda one: self.pipe_file(*one, **kwargs), list(path.items()))
        for error in written:
            if isinstance(error, Exception):
                raise error

    def get_file(self, rpath, lpath, callback=None, outfile=None, **kwargs):
        rpath = self._strip_protocol(rpath)
        if outfile is not None or not isinstance(lpath, (str, os.PathLike)):
            return super().get_file(rpath, lpath, callback=callback, outfile=outfile, **kwargs)
        if self.isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
            return
        os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
        self.client.get(rpath, lpath, replace=True, progress=_telling(callback))

    def put_file(self, lpath, rpath, callback=None, mode="overwrite", **kwargs):
        rpath = self._strip_protocol(rpath)
        if os.path.isdir(lpath):
            self.makedirs(rpath, exist_ok=True)
            return
        replace = mode == "overwrite"
        self.client.put(lpath, rpath, replace=replace, parents=True, progress=_telling(callback))

    @staticmethod
    def _each(call, items):
        """Calls for each item, several at a time. Returns results and exceptions in their order."""

        def one(item):
            try:
                return call(item)
            except Exception as error:
                return error

        if len(items) < 2:
            return [one(item) for item in items]
        with ThreadPoolExecutor(min(_AT_ONCE, len(items)), "nicstripe-fsspec") as pool:
            return list(pool.map(one, items))


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
    if callback is None:
        return None

    def told(progress):
        if progress.get("size_bytes") is not None:
            callback.set_size(progress["size_bytes"])
        callback.absolute_update(progress["bytes"])

    return told
