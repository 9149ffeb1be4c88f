"""Cells on a real local Ray cluster of two nodes."""

import os
from pathlib import Path

import pytest
from cell_cases import cell
from ray_nodes import killing, two_nodes

from cvaml.runs.cells import Cell, run_cells
from cvaml.runs.ray_executor import RayExecutor, environment


@pytest.fixture
def cluster(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))  # for cell_cases
    with two_nodes() as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("files", ["auto", "pull"])
def test_results_failures_and_crashes(cluster, tmp_path, capsys, files):
    good = [cell("say_where", name) for name in "abc"]
    cells = [*good, cell("fail", "bad"), cell("crash", "dead"), cell("leave_nothing", "lazy")]
    failed = run_cells(cells, tmp_path, RayExecutor(files=files, retries=1), "test")
    assert set(failed) == {"bad", "dead", "lazy"}
    assert failed["bad"].startswith("ValueError: no such luck at all (cell_cases.py, line ")
    assert failed["dead"].startswith("lost 2 times: ")
    for one in good:
        where, platform, threads = (tmp_path / one.name).read_text().split("\n")
        assert (Path(where) == tmp_path) == (files == "auto")
        assert (platform, threads) == ("cpu", "1")
        assert files == "auto" or not Path(where).exists()  # the worker's own folder is gone
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]
    err = capsys.readouterr().err
    assert "test: 3/6 cells done, 0 running, 3 failed, 1 retried" in err


@pytest.mark.slow
@pytest.mark.parametrize("files", ["shared", "pull"])
def test_a_lost_node_loses_nothing(cluster, tmp_path, capsys, files):
    names = ["a", "b", "c"]
    cells = [cell("in_parts", name, folder=True, parts=20, pause=0.3) for name in names]
    before: dict[Path, str] = {}

    def five_there() -> bool:
        parts = {path: path.read_text() for path in tmp_path.glob("*/part*")}
        before.update(parts)
        return sum(text.endswith(cluster.second.node_id) for text in parts.values()) >= 5

    with killing(cluster, five_there):
        executor = RayExecutor(files=files, pull_every_s=0.2)
        failed = run_cells(cells, tmp_path, executor, "test")
    assert failed == {}
    lost = [path for path, text in before.items() if text.endswith(cluster.second.node_id)]
    assert len(lost) >= 5
    for path, text in before.items():  # what had been done was not done again
        assert path.read_text() == text
    for name in names:
        assert len(list((tmp_path / name).glob("part*"))) == 20
    # The lost cell was ended by another process than the one that began it.
    assert len({path.read_text() for path in lost[0].parent.glob("part*")}) == 2
    err = capsys.readouterr().err
    assert f"test: {lost[0].parent.name} runs again: " in err
    assert "test: 3/3 cells done, 0 running, 0 failed, 1 retried" in err


@pytest.mark.slow
def test_gpus_are_a_resource(cluster, tmp_path):
    one = cell("say_where", "a")
    on_gpu = Cell("g", "cell_cases:say_where", {"name": "g"}, "g", gpus=1.0)
    assert run_cells([one, on_gpu], tmp_path, RayExecutor(), "test") == {}
    assert (tmp_path / "g").read_text().split("\n")[1] == os.environ.get("JAX_PLATFORMS", "None")
    too_much = Cell("h", "cell_cases:write", {"name": "h"}, "h", gpus=2.0)
    with pytest.raises(ValueError, match="cell h needs 1 CPUs, 2 GPUs; there are 1 CPUs, "):
        run_cells([too_much], tmp_path, RayExecutor(), "test")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_environment_of_a_worker():
    base = Cell("a", "m:f", {}, "a", cpus=2.0)
    assert environment(base)["JAX_PLATFORMS"] == "cpu"
    assert {environment(base)[name] for name in ("NPROC", "OMP_NUM_THREADS")} == {"2"}
    half = Cell("a", "m:f", {}, "a", cpus=0.5, gpus=0.5)
    assert environment(half)["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.450"
    assert environment(half)["NPROC"] == "1"
    assert "JAX_PLATFORMS" not in environment(half)
