import os
import subprocess
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Any, Literal, Self, TypedDict, Unpack, final

from _typeshed import ReadableBuffer as Buffer

__version__: str

Name = str | bytes | os.PathLike[str] | os.PathLike[bytes]
Progress = Callable[[dict[str, Any]], object]

class Settings(TypedDict, total=False):
    port: int | None
    home: Name | None
    links: Sequence[str] | None
    exclude_links: Sequence[str] | None
    streams: int | None
    bandwidth_bps: int | None
    patience: float | None
    family: Literal[4, 6] | None
    state_dir: Name | None
    routes: Literal["auto", "always", "never"] | None

class CopyOptions(TypedDict, total=False):
    replace: bool
    force: bool
    restart: bool
    preserve: bool
    verify: bool
    delta: bool
    in_place: bool
    compress: bool
    allow_changing: bool
    parents: bool
    only_if: str | None

class TreeOptions(CopyOptions, total=False):
    update: bool
    checksum: bool
    owners: bool
    numeric_ids: bool
    xattrs: bool
    nodes: bool
    hard_links: bool
    delete: bool
    dry_run: bool
    one_file_system: bool
    entries: bool
    exclude: Sequence[str]
    files_from: Sequence[Name]

@final
class Stat:
    name: str
    kind: Literal["file", "dir", "other"]
    size: int
    modified_ns: int
    etag: str | None
    digest: str | None
    @property
    def modified(self) -> float: ...
    @property
    def is_file(self) -> bool: ...
    @property
    def is_dir(self) -> bool: ...

@final
class Report:
    @property
    def size(self) -> int: ...
    @property
    def digest(self) -> str | None: ...
    @property
    def etag(self) -> str | None: ...
    @property
    def elapsed(self) -> float: ...
    @property
    def resumed_bytes(self) -> int: ...
    @property
    def goodput_bps(self) -> int: ...
    @property
    def expected_bps(self) -> int | None: ...
    @property
    def limited_by(self) -> str: ...
    def as_dict(self) -> dict[str, Any]: ...

@final
class Transfer:
    def __iter__(self) -> Self: ...
    def __next__(self) -> dict[str, Any]: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...
    def progress(self) -> dict[str, Any]: ...
    def cancel(self) -> None: ...
    def finish(self, progress: Progress | None = None) -> Report: ...

@final
class Entries:
    def __iter__(self) -> Self: ...
    def __next__(self) -> Stat: ...

@final
class ObjectReader:
    size: int
    etag: str | None
    def readinto(self, into: Buffer) -> int: ...
    def seek(self, offset: int, whence: int) -> int: ...
    def tell(self) -> int: ...
    def close(self) -> None: ...

@final
class ObjectWriter:
    def write(self, data: Buffer) -> int: ...
    def finish(self) -> Report | None: ...
    def discard(self) -> None: ...

@final
class Client:
    host: str
    def __new__(cls, host: str, **settings: Unpack[Settings]) -> Self: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...
    def within(self, seconds: float) -> Client: ...
    def interruptible(self) -> tuple[Client, Callable[[], None]]: ...
    def put(
        self,
        source: Name | Sequence[Name],
        name: Name | None = None,
        *,
        progress: Progress | None = None,
        **options: Unpack[TreeOptions],
    ) -> Report: ...
    def get(
        self,
        name: Name | Sequence[Name] | None,
        target: Name,
        *,
        progress: Progress | None = None,
        **options: Unpack[TreeOptions],
    ) -> Report: ...
    def start_put(
        self,
        source: Name | Sequence[Name],
        name: Name | None = None,
        **options: Unpack[TreeOptions],
    ) -> Transfer: ...
    def start_get(
        self,
        name: Name | Sequence[Name] | None,
        target: Name,
        **options: Unpack[TreeOptions],
    ) -> Transfer: ...
    def open(
        self,
        name: Name,
        mode: Literal["rb", "wb", "xb", "r", "w", "x", "rt", "wt", "xt"] = "rb",
        buffering: int = -1,
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        **options: Unpack[CopyOptions],
    ) -> IO[Any]: ...
    def open_reader(self, name: Name, *, only_if: str | None = None) -> ObjectReader: ...
    def open_writer(self, name: Name, **options: Unpack[CopyOptions]) -> ObjectWriter: ...
    def read(
        self,
        name: Name,
        start: int = 0,
        stop: int | None = None,
        *,
        only_if: str | None = None,
    ) -> bytes: ...
    def read_into(self, name: Name, into: Buffer, offset: int = 0) -> int: ...
    def write(self, name: Name, data: Buffer, **options: Unpack[CopyOptions]) -> Report: ...
    def list(self, name: Name | None = None, *, digests: bool = False) -> list[Stat]: ...
    def walk(
        self,
        name: Name | None = None,
        *,
        after: Name | None = None,
        digests: bool = False,
    ) -> Entries: ...
    def stat(self, name: Name) -> Stat: ...
    def verify(self, name: Name) -> Stat: ...
    def make_dir(self, name: Name) -> None: ...
    def remove(self, name: Name, *, only_if: str | None = None) -> None: ...
    def remove_many(self, names: Sequence[Name]) -> list[tuple[str, OSError]]: ...
    def rename(
        self,
        old: Name,
        new: Name,
        *,
        replace: bool = False,
        parents: bool = False,
        only_if: str | None = None,
    ) -> None: ...
    def copy(
        self,
        source: Name,
        target: Name,
        *,
        replace: bool = False,
        parents: bool = False,
        only_if: str | None = None,
    ) -> Stat: ...
    def concat(
        self,
        parts: Sequence[Name],
        target: Name,
        *,
        replace: bool = False,
        parents: bool = False,
        only_if: str | None = None,
    ) -> Stat: ...
    def exec(
        self,
        args: Iterable[Name],
        *,
        input: str | Buffer | None = None,
        text: bool = False,
        check: bool = False,
        timeout: float | None = None,
    ) -> subprocess.CompletedProcess[Any]: ...
    def links(self) -> dict[str, Any]: ...
    def bench(
        self,
        load: float = 10.0,
        *,
        repeats: int | None = None,
        budget: float | None = None,
    ) -> dict[str, Any]: ...
    def root(self) -> str | None: ...
    def close(self) -> None: ...

@final
class Server:
    port: int
    home: os.PathLike[str]
    @property
    def host(self) -> str: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...
    def close(self) -> None: ...

def serve(
    root: Name | None = None,
    *,
    port: int = 0,
    read_only: bool = False,
    append_only: bool = False,
) -> Server: ...
