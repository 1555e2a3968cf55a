import builtins
import os
import subprocess
from collections.abc import Callable, Sequence
from typing import IO, Any, Literal, Self, TypedDict, Unpack, final

from _typeshed import ReadableBuffer as Buffer

__all__ = [
    "Client",
    "Entries",
    "ObjectReader",
    "ObjectWriter",
    "Report",
    "Server",
    "Stat",
    "Transfer",
    "__version__",
    "serve",
]

__version__: str

_Name = str | bytes | os.PathLike[str] | os.PathLike[bytes]
_Progress = Callable[[dict[str, Any]], object]

class _Settings(TypedDict, total=False):
    port: int | None
    home: _Name | None
    links: Sequence[str] | None
    exclude_links: Sequence[str] | None
    streams: int | None
    bandwidth_bps: int | None
    patience: float | None
    family: Literal[4, 6] | None
    state_dir: _Name | None
    routes: Literal["auto", "always", "never"] | None

class _CopyOptions(TypedDict, total=False):
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

class _TreeOptions(_CopyOptions, total=False):
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
    files_from: Sequence[_Name]

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
    def finish(self, progress: _Progress | None = None) -> Report: ...

@final
class Entries:
    def __iter__(self) -> Self: ...
    def __next__(self) -> Stat: ...

@final
class ObjectReader:
    size: int
    etag: str | None
    def readinto(self, into: Buffer) -> int: ...
    def seek(self, offset: int, whence: int = 0) -> int: ...
    def tell(self) -> int: ...
    def close(self) -> None: ...

@final
class ObjectWriter:
    def write(self, data: Buffer) -> int: ...
    def tell(self) -> int: ...
    def finish(self) -> Report: ...
    def discard(self) -> None: ...

@final
class Client:
    host: str
    @property
    def closed(self) -> bool: ...
    def __new__(cls, host: str, **settings: Unpack[_Settings]) -> Self: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...
    def within(self, seconds: float) -> Client: ...
    def interruptible(self) -> tuple[Client, Callable[[], None]]: ...
    def put(
        self,
        source: _Name | builtins.list[Any] | tuple[Any, ...],
        name: _Name | None = None,
        *,
        progress: _Progress | None = None,
        **options: Unpack[_TreeOptions],
    ) -> Report: ...
    def get(
        self,
        name: _Name | builtins.list[Any] | tuple[Any, ...] | None,
        target: _Name,
        *,
        progress: _Progress | None = None,
        **options: Unpack[_TreeOptions],
    ) -> Report: ...
    def start_put(
        self,
        source: _Name | builtins.list[Any] | tuple[Any, ...],
        name: _Name | None = None,
        **options: Unpack[_TreeOptions],
    ) -> Transfer: ...
    def start_get(
        self,
        name: _Name | builtins.list[Any] | tuple[Any, ...] | None,
        target: _Name,
        **options: Unpack[_TreeOptions],
    ) -> Transfer: ...
    def open(
        self,
        name: _Name,
        mode: Literal["rb", "wb", "xb", "r", "w", "x", "rt", "wt", "xt"] = "rb",
        buffering: int | None = None,
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        **options: Unpack[_CopyOptions],
    ) -> IO[Any]: ...
    def open_reader(self, name: _Name, *, only_if: str | None = None) -> ObjectReader: ...
    def open_writer(self, name: _Name, **options: Unpack[_CopyOptions]) -> ObjectWriter: ...
    def read(
        self,
        name: _Name,
        start: int = 0,
        stop: int | None = None,
        *,
        only_if: str | None = None,
    ) -> bytes: ...
    def read_into(self, name: _Name, into: Buffer, offset: int = 0) -> int: ...
    def write(self, name: _Name, data: Buffer, **options: Unpack[_CopyOptions]) -> Report: ...
    def list(self, name: _Name | None = None, *, digests: bool = False) -> builtins.list[Stat]: ...
    def walk(
        self,
        name: _Name | None = None,
        *,
        after: _Name | None = None,
        digests: bool = False,
    ) -> Entries: ...
    def stat(self, name: _Name) -> Stat: ...
    def verify(self, name: _Name) -> Stat: ...
    def make_dir(self, name: _Name) -> None: ...
    def remove(self, name: _Name, *, only_if: str | None = None) -> None: ...
    def remove_many(self, names: Sequence[_Name]) -> builtins.list[tuple[str, OSError]]: ...
    def rename(
        self,
        old: _Name,
        new: _Name,
        *,
        replace: bool = False,
        parents: bool = False,
        only_if: str | None = None,
    ) -> None: ...
    def copy(
        self,
        source: _Name,
        target: _Name,
        *,
        replace: bool = False,
        parents: bool = False,
        only_if: str | None = None,
    ) -> Stat: ...
    def concat(
        self,
        parts: Sequence[_Name],
        target: _Name,
        *,
        replace: bool = False,
        parents: bool = False,
        only_if: str | None = None,
    ) -> Stat: ...
    def exec(
        self,
        args: Sequence[_Name],
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
    root: _Name | None = None,
    *,
    port: int = 0,
    read_only: bool = False,
    append_only: bool = False,
) -> Server: ...
