"""`cvaml calibration` from the command line to its files."""

import json

import numpy as np
import pandas as pd
import pytest

from cvaml.cli import main
from cvaml.reports.calibration import _condition

FILES = {
    "config.json",
    "results.parquet",
    "summary.csv",
    "checks.csv",
    "figure.png",
    "figure.pdf",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "calibration"
    assert main(["calibration", "--problems", "8", "--seed", "1", "--out", str(out)]) == 0
    return out


def excess(run, **where):
    summary = pd.read_csv(run / "summary.csv")
    chosen = summary[(summary["metric"] == "excess") & (summary["kind"] == "any")]
    for column, value in where.items():
        chosen = chosen[chosen[column] == value]
    return chosen


def test_files(run):
    assert {path.name for path in run.iterdir()} == FILES
    config = json.loads((run / "config.json").read_text())
    assert config["study"] == "calibration"
    assert config["settings"] == {"problems": 8, "seed": 1}
    assert (run / "figure.png").read_bytes()[:4] == b"\x89PNG"


def test_verdicts_are_computed_from_the_results(run):
    results = pd.read_parquet(run / "results.parquet")
    table = results[(results["part"] == "table") & (results["metric"] == "excess")]
    keys = ["environment", "model_class", "loss", "update", "target", "correction", "k"]
    largest = table.groupby(keys)["value"].max()
    rows = excess(run, part="table")
    assert len(rows) == len(largest) == 120
    for _, row in rows.iterrows():
        found = largest[tuple(row[key] for key in keys)]
        assert row["verdict"] == ("calibrated" if found < 1e-10 else "uncalibrated")
        assert row["max"] == pytest.approx(found)


def test_the_table_says_what_the_theory_says(run):
    common = {"part": "table", "environment": "stochastic", "model_class": "all"}
    for loss in ("itervaml", "muzero"):
        model = {**common, "loss": loss, "update": "model"}
        assert excess(run, **model, correction="none", k=1)["verdict"].item() == "uncalibrated"
        assert excess(run, **model, correction="unbiased")["verdict"].item() == "calibrated"
        assert excess(run, **model, correction="printed")["verdict"].item() == "uncalibrated"
    assert set(excess(run, part="table", loss="td")["verdict"]) == {"calibrated"}
    det = excess(run, part="table", environment="deterministic", loss="itervaml", correction="none")
    conditions = det.set_index(["model", "model_class", "k"])["condition"]
    assert conditions["deterministic", "deterministic", 1] == "agrees"
    assert conditions["stochastic", "all", 1] == "only with a noise floor"


def test_intervals_contain_the_mean(run):
    rows = excess(run)
    finite = rows[rows["mean"].notna()]
    assert np.all(finite["low"] <= finite["mean"] + 1e-12)
    assert np.all(finite["mean"] <= finite["high"] + 1e-12)


def test_every_check_holds(run):
    checks = pd.read_csv(run / "checks.csv")
    assert checks["holds"].all(), checks[~checks["holds"]]
    assert {"Proposition 1", "Proposition 3.1", "Lemma 3", "Minimisers"} <= set(checks["statement"])


def test_a_second_run_recomputes_nothing(run, capsys, monkeypatch):
    from cvaml.experiments import calibration

    before = {path.name: path.stat().st_mtime_ns for path in run.iterdir()}
    monkeypatch.setattr(calibration, "compute", None)  # would raise if called
    assert main(["calibration", "--problems", "8", "--seed", "1", "--out", str(run)]) == 0
    assert {path.name: path.stat().st_mtime_ns for path in run.iterdir()} == before
    printed = capsys.readouterr().out
    for words in ("Table 1", "only with a noise floor", "regret against k", "Proposition 3.1"):
        assert words in printed


def test_another_configuration_is_refused(run, capsys):
    for arguments in (["--problems", "9", "--seed", "1"], ["--problems", "8", "--seed", "2"]):
        assert main(["calibration", *arguments, "--out", str(run)]) == 2
        assert "another configuration" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--problems", "3"], "--problems must be at least 7"), (["--seed", "-1"], "negative")],
)
def test_bad_input_is_one_line(arguments, message, tmp_path, capsys):
    assert main(["calibration", *arguments, "--out", str(tmp_path / "x")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "x").exists()


def test_problems_do_not_depend_on_their_number(run, tmp_path):
    from cvaml.experiments.calibration import Config, _draw

    few, many = (_draw(Config(problems=n, seed=1), "stochastic") for n in (8, 20))
    for (kind, problem), (other_kind, other) in zip(few, many, strict=False):
        assert kind == other_kind
        np.testing.assert_array_equal(problem.kernel, other.kernel)


def test_conditions_in_words():
    places = [(c, k) for c in ("all", "floor") for k in ("full", "deficient", "subset")]
    floor = [place for place in places if place[0] == "floor"]
    assert _condition(places, places) == "agrees"
    assert _condition(places, []) == "differs"
    assert _condition(places, floor) == "only with a noise floor"
    assert _condition(places, [("all", "full"), ("floor", "full")]) == (
        "only if full rank, all states weighted"
    )
    assert _condition(places, places[1:]) == (
        "except over all distributions if full rank, all states weighted"
    )
