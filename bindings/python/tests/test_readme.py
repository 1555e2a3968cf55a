"""The programs of the README run as they are, but for the name of the host."""

import pathlib
import re

import pytest

import nicstripe

README = pathlib.Path(__file__).parent.parent / "README.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_program_runs(program, server, tmp_path, monkeypatch, capsys):
    if "pandas" in program:
        pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "disk.img").write_bytes(bytes(1 << 20))
    monkeypatch.setenv("NICSTRIPE_HOME", str(server.home))
    program = program.replace('"nas"', f'"{server.host}", port={server.port}')
    program = program.replace("//nas/", f"//{server.host}:{server.port}/")
    exec(compile(program, str(README), "exec"), {})
    assert capsys.readouterr().out


def test_there_are_programs():
    assert len(PROGRAMS) == 2 and nicstripe.__version__
