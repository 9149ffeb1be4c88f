"""The sweep of step sizes: same effort for every variant, and the steps really differ."""

import pandas as pd
import pytest

from cvaml.cli import main

SMALL = (
    "garnet-tune --problems 2 --ranks 2 --temperatures 1 --variants mle cvaml-1-0 --k 4 --steps 250"
    " --model-steps 0.001 0.03 --value-steps 0.1 0.3"
)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    path = tmp_path_factory.mktemp("tune") / "t"
    assert main([*SMALL.split(), "--out", str(path)]) == 0
    return path


def test_every_variant_gets_every_pair_and_one_is_best(out):
    steps = pd.read_csv(out / "steps.csv")
    assert (steps.groupby(["variant", "k"]).size() == 4).all()
    assert (steps.groupby("variant")["best"].sum() == 1).all()
    assert steps["log10_nmse"].nunique() == 8
    rows = pd.read_parquet(out / "results.parquet")
    assert len(rows) == 2 * 4 * 2


def test_the_table_marks_the_best(out, capsys):
    assert main([*SMALL.split(), "--out", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| variant | k | 0.001 / 0.1 | 0.001 / 0.3 | 0.03 / 0.1 | 0.03 / 0.3 |"
    assert lines[2].startswith("| mle | 1 |")
    assert lines[2].count("**") == 2


def test_bad_steps_are_refused(out, capsys):
    assert main([*SMALL.split(), "--out", str(out), "--model-steps", "0"]) == 2
    assert "model_steps must be one or more positive numbers" in capsys.readouterr().err
