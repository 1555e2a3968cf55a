"""fsspec's own suite, on a directory and in memory, and what programs do through it."""

import posixpath

import pytest

import nicstripe

fsspec = pytest.importorskip("fsspec")

from fsspec.tests import abstract  # noqa: E402

from nicstripe.fsspec import NicstripeFileSystem  # noqa: E402


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture(scope="class", params=["directory", "memory"])
    @classmethod
    def fs(cls, request, tmp_path_factory):
        root = tmp_path_factory.mktemp("root") if request.param == "directory" else None
        with nicstripe.serve(root) as server:
            fs = NicstripeFileSystem(server.host, server.port, home=server.home)
            yield fs
            fs.close()

    @pytest.fixture
    def fs_path(self):
        return "suite"

    @pytest.fixture
    def fs_join(self):
        return posixpath.join


class TestCopy(abstract.AbstractCopyTests, Fixtures):
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):
    pass
