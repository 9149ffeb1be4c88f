"""The garnet command: what it writes, that it completes itself, and what it refuses."""

import json

import numpy as np
import pandas as pd
import pytest

from cvaml.cli import main
from cvaml.experiments import garnet
from cvaml.experiments.garnet import Config, study_arms, study_cells
from cvaml.types import UserError

SIZE = "--problems 18 --ranks 1 2 --temperatures 0.1 1 --steps 250 --states 10 --successors 3"
SMALL = ["garnet", *SIZE.split(), "--variants", "mle", "vaml-1-0", "cvaml-1-0"]
SUMMARY = "study,variant,k,rank,temperature,iteration,metric,mean,median,low,high,problems"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("garnet") / "g"
    assert main([*SMALL, "--out", str(out)]) == 0
    return out


def test_files_and_columns(run):
    for name in garnet.OUTPUTS:
        assert (run / name).stat().st_size > 0
    assert (run / "summary.csv").read_text().splitlines()[0] == SUMMARY
    results = pd.read_parquet(run / "results.parquet")
    # mle once, vaml with k = 1 and 4, cvaml with k = 4 only
    assert len(results) == 18 * 2 * 2 * 4
    arms = set(zip(results["variant"], results["k"], strict=True))
    assert arms == {("mle", 1), ("vaml-1-0", 1), ("vaml-1-0", 4), ("cvaml-1-0", 4)}
    assert json.loads((run / "config.json").read_text())["settings"]["problems"] == 18


def test_summary_agrees_with_the_rows(run):
    results, summary = pd.read_parquet(run / "results.parquet"), pd.read_csv(run / "summary.csv")
    cell = (summary["rank"] == 2) & (summary["temperature"] == 0.1) & (summary["k"] == 4)
    row = summary[cell & (summary["variant"] == "vaml-1-0") & (summary["metric"] == "mse")].iloc[0]
    of = results.query("rank == 2 and temperature == 0.1 and k == 4 and variant == 'vaml-1-0'")
    assert row["mean"] == pytest.approx(of["mse"].mean())
    assert row["median"] == pytest.approx(of["mse"].median())
    assert row["low"] < row["mean"] < row["high"]
    assert row["problems"] == 18
    assert {"mse", "nmse", "unconverged"} <= set(summary["metric"])
    assert summary["iteration"].isna().all()


def test_paired_differences_are_antisymmetric(run):
    paired = pd.read_csv(run / "paired.csv")
    pick = paired[(paired["rank"] == 1) & (paired["temperature"] == 1)]
    one = pick[(pick["variant"] == "mle") & (pick["against"] == "cvaml-1-0")].iloc[0]
    two = pick[(pick["variant"] == "cvaml-1-0") & (pick["against"] == "mle")].iloc[0]
    assert one["log10_difference"] == pytest.approx(-two["log10_difference"])
    assert one["low"] == pytest.approx(-two["high"])
    assert one["win_rate"] + two["win_rate"] == pytest.approx(1)


def test_running_again_recomputes_nothing_and_completes_what_is_missing(run, monkeypatch, capsys):
    before = (run / "results.parquet").read_bytes()
    times = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    monkeypatch.setattr(garnet, "run_cell", None)
    assert main([*SMALL, "--out", str(run)]) == 0
    assert times == {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    assert "lowest mean error" in capsys.readouterr().out
    monkeypatch.undo()
    shard = sorted((run / "cells").iterdir())[1]
    shard.unlink()
    assert main([*SMALL, "--out", str(run), "--workers", "1"]) == 0
    assert (run / "results.parquet").read_bytes() == before
    kept = sorted((run / "cells").iterdir())[0]
    assert kept.stat().st_mtime_ns == times[kept]


def test_fewer_problems_give_the_same_rows(run, tmp_path):
    arguments = [*SMALL, "--out", str(tmp_path / "g")]
    arguments[arguments.index("18")] = "3"
    assert main(arguments) == 0
    few = pd.read_parquet(tmp_path / "g/results.parquet")
    many = pd.read_parquet(run / "results.parquet").query("problem < 3")
    keys = ["rank", "temperature", "variant", "k", "problem"]
    pd.testing.assert_frame_equal(
        few.sort_values(keys).reset_index(drop=True), many.sort_values(keys).reset_index(drop=True)
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("--ranks 0", "rank must be at least 1, got 0"),
        ("--temperatures 0", "positive and finite, got 0.0"),
        ("--temperatures -1", "positive and finite, got -1.0"),
        ("--successors 11", "from 1 to the number of states 10, got 11"),
        ("--variants nonsense", "unknown variant 'nonsense'"),
        ("--variants td3", "does not fit"),
        ("--variants cvaml-1-0 --k 1", "needs k of at least 2"),
        ("--k 0", "at least 1"),
        ("--problems 0", "problems must be at least 1, got 0"),
        ("--discount 1", "below 1, got 1.0"),
        ("--spread -1", "spread must be at least 0"),
        ("--steps 0", "steps must be at least 1"),
        ("--model-step 0", "model_step must be positive"),
        ("--value-step -1", "value_step must be positive"),
        ("--workers 0", "workers must be at least 1"),
        ("--mode sampled --variants cvaml-3-1", "m = 1"),
        ("--problems 17", "holds another configuration"),
        ("--out /proc/nowhere", "cannot create the folder"),
    ],
)
def test_bad_input_is_refused_before_any_work(change, message, run, monkeypatch, capsys):
    monkeypatch.setattr(garnet, "run_cell", None)
    assert main([*SMALL, "--out", str(run), *change.split()]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_failing_cell_ends_the_command_and_keeps_what_was_done(tmp_path, monkeypatch):
    computed = garnet.run_cell

    def second_fails(cell, *arguments):
        if cell.rank == 1:
            raise MemoryError("no room")
        return computed(cell, *arguments)

    monkeypatch.setattr(garnet, "run_cell", second_fails)
    with pytest.raises(MemoryError):
        main([*SMALL, "--out", str(tmp_path / "g"), "--workers", "1"])
    kept = sorted(path.name for path in (tmp_path / "g/cells").iterdir())
    assert kept == [
        "rank002-problems000000-000016.parquet",
        "rank002-problems000016-000018.parquet",
    ]


def test_an_absent_device_is_refused(tmp_path):
    import jax

    if jax.default_backend() == "gpu":
        pytest.skip("there is a GPU here")
    with pytest.raises(UserError, match="no device 'gpu' here"):
        garnet.main(Config(out=str(tmp_path / "g"), device="gpu"))


def test_options_reach_the_cells():
    config = Config(
        problems=3, ranks=(4,), temperatures=(0.5,), steps=700, discount=0.5, spread=0.3, seed=9,
        mode="sampled", model_step=0.02, value_step=0.3, states=20, successors=5, tolerance=0.1,
    )  # fmt: skip
    (cell,) = study_cells(config, study_arms(config))
    assert (cell.rank, cell.temperatures, cell.stopping.steps) == (4, (0.5,), 700)
    assert (cell.discount, cell.spread, cell.seed, cell.mode) == (0.5, 0.3, 9, "sampled")
    assert (cell.states, cell.successors, cell.last) == (20, 5, 3)
    assert {(arm.model_step, arm.value_step) for arm in cell.arms} == {(0.02, 0.3)}
    assert garnet.tuned_steps("vaml-1-0", 16) == garnet.TUNED["vaml-1-0", 4]
    assert garnet.tuned_steps("printed-1-1", 4) == (3e-3, 0.1)
    wide = Config(problems=100, ranks=(2,), temperatures=(1.0,), variants=("mle",))
    assert [cell.last for cell in study_cells(wide, study_arms(wide))][:2] == [16, 32]
    assert len(study_cells(wide, study_arms(wide), "gpu")) == 1
    exact = Config(tolerance=0.1)
    assert study_cells(exact, study_arms(exact))[0].stopping.tolerance == 0.1
    assert np.isclose(study_cells(exact, study_arms(exact))[0].final_step, 1)
