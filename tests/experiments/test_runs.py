import csv
import io
import json
import shutil

import numpy as np
import pandas as pd
import pytest

from cvaml import cli
from cvaml.reports.reading import read_runs
from cvaml.runs.folder import RunFolder
from cvaml.runs.metrics import MetricsStore


@pytest.fixture
def runs(tmp_path):
    settings = {"task": ["pendulum-swingup"], "variant": "cvaml-1-0", "model": "stochastic"}
    folder = RunFolder.open(tmp_path / "runs/r", "train", settings | {"seed": 1})
    store = MetricsStore(folder)
    members = [
        {"variant": "cvaml-1-0", "model": "stochastic", "task": "p", "seed": s} for s in (1, 2)
    ]
    for step in (100, 200):
        counters = {"agent_step": step, "env_step": step, "grad_step": step, "wall_s": 1.0}
        store.add(members, counters, {"loss": np.array([1 / 3, step])})
    store.flush()
    folder.finish({"agent_step": 200})
    RunFolder.open(tmp_path / "runs/g", "garnet", {})
    return tmp_path / "runs"


def test_list(runs, capsys):
    assert cli.main(["runs", "list", str(runs)]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["run", "study", "state", "step", "variant", "model", "task", "seed"]
    assert rows[0].split() == ["g", "garnet", "stopped"]
    assert rows[1].split()[:4] == ["r", "train", "done", "200"]
    assert cli.main(["runs", "list", str(runs), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[1]["variant"] == "cvaml-1-0"


def test_show(runs, capsys):
    assert cli.main(["runs", "show", str(runs / "r")]) == 0
    out = capsys.readouterr().out
    assert "train, done, step 200" in out
    assert "variant = cvaml-1-0" in out
    assert cli.main(["runs", "show", str(runs / "r"), "--format", "json"]) == 0
    last = json.loads(capsys.readouterr().out)["metrics"]
    assert [row["value"] for row in last] == [1 / 3, 200]
    assert cli.main(["runs", "show", str(runs / "g")]) == 0
    assert "no metrics" in capsys.readouterr().out


def test_export(runs, tmp_path, capsys):
    out = tmp_path / "curves.csv"
    arguments = ["runs", "export", str(runs / "r"), "--format", "csv", "--out", str(out)]
    assert cli.main(arguments) == 0
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    assert [(r["run"], r["agent_step"], float(r["value"])) for r in rows] == [
        ("r", "100", 1 / 3),
        ("r", "100", 100.0),
        ("r", "200", 1 / 3),
        ("r", "200", 200.0),
    ]
    capsys.readouterr()
    assert cli.main(["runs", "export", str(runs), "--format", "json"]) == 0
    lines = [json.loads(line) for line in io.StringIO(capsys.readouterr().out)]
    assert len(lines) == 4
    assert cli.main(["runs", "export", str(runs)]) == 0
    assert "cvaml-1-0" in capsys.readouterr().out


@pytest.mark.parametrize(("folder", "name"), [("runs", "r"), ("runs/r", "r")])
def test_a_packed_run_is_read_as_the_run_itself(runs, folder, name, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    assert cli.main(["runs", "pack", folder, "--out", "kept"]) == 0
    assert f"{name}.parquet, .json: 4 rows" in capsys.readouterr().out
    assert {file.name for file in (runs.parent / "kept").iterdir()} == {"r.parquet", "r.json"}
    (packed,), (whole,) = read_runs([runs.parent / "kept"]), read_runs([runs / "r"])
    assert packed.config == whole.config
    assert packed.study == "train"
    pd.testing.assert_frame_equal(packed.metrics, whole.metrics)
    assert cli.main(["runs", "pack", folder, "--out", "kept"]) == 0, "packing again is fine"


def test_packed_runs_never_share_a_file(runs, capsys):
    shutil.copytree(runs / "r", runs / "a-b")
    shutil.copytree(runs / "r", runs / "a" / "b")
    assert cli.main(["runs", "pack", str(runs), "--out", str(runs.parent / "kept")]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert len(read_runs([runs.parent / "kept"])) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pack", "runs"], "pack needs --out"),
        (["pack", "runs/g", "--out", "kept"], "holds no run with metrics"),
        (["pack", "runs", "--out", "runs/r/config.json/x"], "cannot write"),
        (["list", "nowhere"], "is not a folder"),
        (["show", "."], "is not a run folder"),
        (["export", "empty"], "holds no run"),
        (["export", "runs/r", "--out", "runs/r/config.json/x"], "cannot write"),
    ],
)
def test_refusals(runs, arguments, message, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    (runs.parent / "empty").mkdir()
    assert cli.main(["runs", *arguments]) == 2
    assert message in capsys.readouterr().err
