"""Run folders are read as data; what cannot be read is named."""

import json
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fake_runs import agent_run, tabular_run

from cvaml.reports.reading import read_runs
from cvaml.runs.folder import RunFolder
from cvaml.runs.metrics import MetricsStore
from cvaml.types import UserError


def test_reads_what_the_run_store_writes(tmp_path):
    folder = RunFolder.open(tmp_path / "run", "train", {"variant": "cvaml-1-0"})
    store = MetricsStore(folder)
    member = {"variant": "cvaml-1-0", "model": "stochastic", "task": "dog-run", "seed": 0}
    for step in (0, 100):
        counters = {"agent_step": step, "env_step": 2 * step, "grad_step": step, "wall_s": 1.0}
        store.add([member], counters, {"eval_return": [float(step)]})
        store.flush()
    (run,) = read_runs([tmp_path / "run"])
    assert run.study == "train"
    assert run.metrics is not None
    np.testing.assert_array_equal(run.metrics["value"], [0.0, 100.0])
    np.testing.assert_array_equal(run.metrics["env_step"], [0.0, 200.0])


def test_finds_runs_below_a_folder_once(tmp_path):
    agent_run(tmp_path / "sweep" / "cell-a")
    agent_run(tmp_path / "sweep" / "part" / "cell-b")
    tabular_run(tmp_path / "g")
    runs = read_runs([tmp_path / "g", tmp_path / "sweep", tmp_path / "sweep" / "cell-a"])
    assert [run.path.name for run in runs] == ["g", "cell-a", "cell-b"]
    assert runs[0].summary is not None
    assert runs[1].metrics is not None


def test_a_study_with_a_configuration_of_its_own_is_read_by_its_cells(tmp_path):
    agent_run(tmp_path / "dmc" / "cell-a")
    agent_run(tmp_path / "dmc" / "cell-b", "vaml-1-0")
    (tmp_path / "dmc" / "config.json").write_text(json.dumps({"study": "dmc"}))
    (tmp_path / "dmc" / "summary.csv").write_text("variant,mean\ncvaml-1-0,1\n")
    runs = read_runs([tmp_path / "dmc"])
    assert [run.path.name for run in runs] == ["cell-a", "cell-b"]


def test_reads_a_loose_file_with_its_configuration_beside(tmp_path):
    folder = agent_run(tmp_path / "run", "vaml-1-1")
    loose = tmp_path / "kept" / "vaml.parquet"
    loose.parent.mkdir()
    (folder / "metrics.parquet").rename(loose)
    loose.with_suffix(".json").write_text(json.dumps({"study": "dmc", "command": "cvaml train"}))
    (run,) = read_runs([tmp_path / "kept"])
    assert run.study == "dmc"
    assert run.config["command"] == "cvaml train"
    assert set(run.metrics["variant"]) == {"vaml-1-1"}


def test_nothing_in_a_folder_is_executed(tmp_path):
    mark = tmp_path / "executed"

    class Trap:
        def __reduce__(self):
            return Path.touch, (mark,)

    folder = tabular_run(tmp_path / "g")
    for name in ("state.pkl", "metrics.pkl", "sitecustomize.py", "conftest.py"):
        (folder / name).write_bytes(pickle.dumps(Trap()))
    read_runs([folder])
    assert not mark.exists()
    (folder / "config.json").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(UserError, match=r"cannot read .*config\.json"):
        read_runs([folder])
    assert not mark.exists()


def test_rows_that_are_not_finite_are_left_out(tmp_path):
    folder = agent_run(tmp_path / "run", seeds=1, tasks=("dog-run",))
    table = pd.read_parquet(folder / "metrics.parquet")
    table.loc[0, "value"] = np.nan
    table.to_parquet(folder / "metrics.parquet")
    (run,) = read_runs([folder])
    assert len(run.metrics) == len(table) - 1


def broken(tmp_path: Path, kind: str) -> Path:
    folder = tmp_path / kind
    if kind == "missing":
        return folder
    if kind == "text.txt":
        folder.write_text("hello")
        return folder
    if kind == "empty":
        folder.mkdir()
        return folder
    if kind == "no-summary":
        tabular_run(folder)
        (folder / "summary.csv").unlink()
        return folder
    if kind == "words-for-numbers":
        tabular_run(folder)
        (folder / "summary.csv").write_text("variant,metric,mean,low,high\na,b,c,d,e\n")
        return folder
    agent_run(folder)
    if kind == "list-config":
        (folder / "config.json").write_text("[1]")
    elif kind == "no-parquet":
        (folder / "metrics.parquet").write_bytes(b"not parquet")
    elif kind == "other-columns":
        pd.DataFrame({"a": [1]}).to_parquet(folder / "metrics.parquet")
    return folder


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("missing", "does not exist"),
        ("text.txt", "neither a run folder"),
        ("empty", "holds no run"),
        ("no-summary", "no results yet"),
        ("words-for-numbers", r"cannot read .*summary\.csv"),
        ("list-config", "expected an object"),
        ("no-parquet", r"cannot read .*metrics\.parquet"),
        ("other-columns", "not a table of metrics: it has no variant"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, kind, said):
    with pytest.raises(UserError, match=said):
        read_runs([broken(tmp_path, kind)])
