"""Storage of BorgBackup 2: a backend of ``borgstore`` (0.7 or later) at a nicstripe daemon.

>>> from borgstore.store import Store
>>> store = Store(backend=Backend("nas", "backups/laptop"), config={"data": {"levels": [2]}})
>>> store.create()
>>> with store:
...     store.store("data/00ff", b"content")
"""

import re
import secrets
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import unquote

from borgstore.backends import _base, errors
from borgstore.backends._base import ItemInfo, validate_name, validate_sources
from borgstore.constants import TMP_SUFFIX
from borgstore.utils.nesting import nest

from . import Client, Error

_URL = re.compile(r"nicstripe://(?:\[([^][@/?#]+)]|([^][@:/?#]+))(?::(\d+))?(?:/([^?#]*))?")


def get_nicstripe_backend(url, **settings):
    """Returns the backend of ``nicstripe://host[:port]/path``, or None for another URL."""
    if found := _URL.fullmatch(url):
        v6, host, port, path = found.groups()
        if port:
            settings["port"] = int(port)
        return Backend(v6 or host, unquote(path or ""), **settings)


class Backend(_base.BackendBase):
    """Directory ``path`` below that of a daemon, as storage of ``borgstore``.

    ``client`` is a host, with settings of ``nicstripe.Client``, or an open client, which stays open.

    The daemon enforces the rights of this machine: with ``read-only`` all writes raise
    ``PermissionDenied``, with ``append-only`` overwrites, moves and deletions. A full disk there raises
    ``QuotaExceeded``; ``quota`` returns no limit.
    """

    def __init__(self, client, path="", **settings):
        if settings and isinstance(client, Client):
            raise TypeError("settings are for a host, not for an open client")
        self._source, self._settings = client, settings
        self._base = path.strip("/")
        self._client = self._session = None

    def create(self):
        """Creates the directory and its parents. An empty one may exist."""
        with self._unopened() as (client, _):
            if self._base:
                client.make_dir(self._base)
            if client.list(self._base):
                raise errors.BackendAlreadyExists(f"directory {self._base!r} is not empty")

    def destroy(self):
        """Removes the directory with its content, but not the directory that the daemon serves."""
        with self._unopened() as (client, _):
            self._require_dir(client)
            # A directory precedes its content in a walk.
            names = [self._path(entry.name) for entry in client.walk(self._base)][::-1]
            for _, error in client.remove_many(names + [self._base] * bool(self._base)):
                if not isinstance(error, FileNotFoundError):
                    raise error

    def open(self):
        """Connects. Requires that the directory exists."""
        with self._unopened() as (client, session):
            self._require_dir(client)
            self._client, self._session = client, session.pop_all()

    def close(self):
        """Disconnects, if the backend has connected."""
        self._opened()
        self._client = None
        self._session.close()

    def mkdir(self, name):
        """Creates a directory and its parents. It may exist."""
        with self._at(name) as (client, path):
            if path:
                client.make_dir(path)

    def rmdir(self, name):
        """Removes an empty directory."""
        with self._at(name) as (client, path):
            # `remove` also removes files.
            if not client.stat(path).is_dir:
                raise errors.BackendError(f"{name} is not a directory")
            client.remove(path)

    def info(self, name):
        """Returns the metadata of an item or a directory. A missing one is no error."""
        with self._at(name) as (client, path):
            try:
                return _info(client.stat(path)) if path else ItemInfo("", True, 0, True)
            except FileNotFoundError:
                return ItemInfo(name.rpartition("/")[2], False, 0, False)

    def load(self, name, *, size=None, offset=0):
        """Returns a range of an item: less at its end. A negative offset counts from the end."""
        with self._at(name) as (client, path):
            while True:
                start, etag = offset, None
                if offset < 0:
                    stat = client.stat(path)
                    start, etag = max(0, stat.size + offset), stat.etag
                try:
                    stop = None if size is None else start + size
                    return client.read(path, start, stop, only_if=etag)
                except Error as error:
                    if error.code == "range" and not etag:
                        return b""
                    # Reads again if another client has replaced it meanwhile.
                    if error.code not in ("precondition", "range", "source_changed"):
                        raise

    def store(self, name, value):
        """Stores a value, without a copy of it. It replaces the old one when it is durable."""
        with self._at(name) as (client, path):
            client.write(path, _base.validate_value(value), replace=True, parents=True)

    def delete(self, name):
        """Deletes an item, or an empty directory."""
        with self._at(name) as (client, path):
            client.remove(path)

    def move(self, curr_name, new_name):
        """Renames an item, and replaces one with the new name."""
        validate_name(new_name)
        with self._at(curr_name) as (client, path):
            client.rename(path, self._path(new_name), replace=True, parents=True)

    def gather(self, sources):
        """Returns ranges of items, concatenated in their order. Reads up to 8 at a time."""
        client, end = self._opened().interruptible()
        wanted = [source for source in validate_sources(sources) if source[2]]
        part = Backend(client, self._base)
        part._client = client
        with ThreadPoolExecutor(8) as pool:
            try:
                return b"".join(pool.map(part._range, wanted))
            except BaseException:
                end()
                raise

    def defrag(self, sources, *, target=None, algorithm=None, namespace=None, levels=0):
        """Makes one item of ranges of others, and returns its name.

        The daemon concatenates whole items and computes ``blake3``; all else crosses the cables.
        """
        sources = validate_sources(sources)
        wholes = {(name, 0, self.info(name).size) for name in {source[0] for source in sources}}
        if not (target or algorithm == "blake3") or not wholes.issuperset(sources):
            naming = {"algorithm": algorithm, "namespace": namespace, "levels": levels}
            return super().defrag(sources, target=target, **naming)
        prefix = namespace.rstrip("/") + "/" if namespace else ""
        with self._at(target or prefix + secrets.token_hex(16)) as (client, path):
            parts = [self._path(name) for name, _, _ in sources]
            made = path if target else path + TMP_SUFFIX
            client.concat(parts, made, replace=True, parents=True)
            if target is None:
                target = nest(prefix + client.verify(made).digest, levels)
                client.rename(made, self._path(target), replace=True, parents=True)
        return target

    def hash(self, name, algorithm="sha256"):
        """Returns the hash of an item's content. The daemon computes ``blake3``, this machine others."""
        if algorithm == "blake3":
            with self._at(name) as (client, path):
                try:
                    return client.verify(path).digest
                except Error as error:
                    if error.word != "damaged":
                        raise
        return super().hash(name, algorithm)

    def list(self, name):
        """Iterates over a directory, sorted by name. Skips names that borgstore does not permit."""
        with self._at(name) as (client, path):
            entries = client.list(path)
        for entry in entries:
            with suppress(ValueError):
                validate_name(entry.name)
                if entry.kind != "other":
                    yield _info(entry)

    @contextmanager
    def _unopened(self):
        """Gives a client, and the stack that closes it."""
        if self._client is not None:
            raise errors.BackendMustNotBeOpen()
        with _translated(self._base or "/"), ExitStack() as session:
            client = self._source
            if not isinstance(client, Client):
                client = session.enter_context(Client(client, **self._settings))
            yield client, session

    def _opened(self):
        if self._client is None:
            raise errors.BackendMustBeOpen()
        return self._client

    @contextmanager
    def _at(self, name):
        """Gives the client and the path of a valid name."""
        client = self._opened()
        validate_name(name)
        with _translated(name):
            yield client, self._path(name)

    def _require_dir(self, client):
        try:
            client.list(self._base)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise errors.BackendDoesNotExist(str(error)) from error

    def _path(self, name):
        return f"{self._base}/{name}".strip("/")

    def _range(self, source):
        name, offset, size = source
        data = self.load(name, offset=offset, size=size)
        if len(data) != size:
            raise errors.ReadRangeError(f"{name}: {len(data)} of {size} bytes at offset {offset}")
        return data


def _info(stat):
    size = 0 if stat.is_dir else stat.size
    return ItemInfo(stat.name.rpartition("/")[2], True, size, stat.is_dir, mtime=stat.modified)


@contextmanager
def _translated(name):
    """Raises the errors of a client as those of borgstore."""
    try:
        yield
    except Error as error:
        raise _exception(error, f"{name}: {error}") from error


def _exception(error, text):
    if isinstance(error, (FileNotFoundError, NotADirectoryError)) or error.code == "not_a_file":
        return errors.ObjectNotFound(text)
    if isinstance(error, PermissionError):
        return errors.PermissionDenied(text)
    if isinstance(error, (ConnectionError, TimeoutError)):
        return errors.BackendConnectionError(text)
    if error.word == "name":
        return ValueError(text)
    return (errors.QuotaExceeded if error.code == "no_space" else errors.BackendError)(text)
