import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

from cvaml import cli
from cvaml.experiments import cliffwalk as study
from cvaml.experiments.cliffwalk import Config, blocks, cells, chosen_losses, run_cell
from cvaml.losses import expected_vaml_loss, fit_variant
from cvaml.reports.cliffwalk import rank_losses, short_table, summarise
from cvaml.runs.folder import RunFolder
from cvaml.types import UserError

SMALL = Config(ranks=(2,), temps=(0.99,), seeds=2, iterations=2, steps=60)
COLUMNS = "study,variant,k,rank,temperature,iteration,metric,mean,median,low,high,problems"


def only(**changes):
    (cell,) = cells(dataclasses.replace(SMALL, **changes))
    return cell


@pytest.fixture(scope="module")
def table():
    return run_cell(only())


def test_one_row_per_loss_seed_and_iteration(table):
    keys = ["variant", "k", "rank", "temperature", "seed", "iteration"]
    assert len(table) == 7 * 2 * 3 == len(table.drop_duplicates(keys))
    first = table[table.iteration == 0]
    np.testing.assert_allclose(first["return"], -146.728187837298)
    np.testing.assert_allclose(table.optimal_return, -5.807072472157)
    assert (table["return"] <= table.optimal_return + 1e-9).all()
    assert table.value_error.isna().equals(table.iteration == 0)
    np.testing.assert_allclose(first.entropy, np.log(25), atol=1e-3)


def test_the_same_bits_again_with_more_seeds_and_in_another_order(table):
    """The seeds and losses of `table` sit at other places of other blocks."""
    keys = ["variant", "k", "seed", "iteration"]
    names = tuple(reversed(SMALL.variants))
    other = run_cell(only(variants=names, seeds=11))
    assert len(blocks(only(seeds=11))) == 2
    found = table[keys].merge(other, on=keys)
    pd.testing.assert_frame_equal(found[table.columns.tolist()], table, check_exact=True)


def test_seeds_and_base_seed_change_the_start(table):
    ours = table[(table.variant == "mle") & (table.iteration == 1)].value_error
    other = run_cell(only(seed=1, seeds=1, variants=("mle",), iterations=1)).value_error
    assert len({*ours, other[1]}) == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"cliff": "end"},
        {"fresh": True},
        {"improvement": "environment"},
        {"spread": 0.5},
        {"model_step": 0.02},
        {"value_step": 0.05},
        {"gamma": 0.8},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_every_option_changes_the_numbers(table, changes):
    own = run_cell(only(**changes))
    columns = ["return", "value_error", "entropy"]
    assert not np.array_equal(own[columns], table[columns], equal_nan=True)


def test_another_loss_changes_the_study(table, monkeypatch):
    """The study minimises what the variant says: a loss without a fast path goes by autodiff."""

    def doubled(*arguments):
        return 2 * expected_vaml_loss(*arguments) + 0.1 * arguments[0][0]

    def fit(name, study, k=None):
        return dataclasses.replace(fit_variant(name, study, k), expected=doubled)

    plain = run_cell(only(variants=("cvaml-1-0",), seeds=1, iterations=1))
    monkeypatch.setattr("cvaml.losses.fit_variant", fit)
    changed = run_cell(only(variants=("cvaml-1-0",), seeds=1, iterations=1))
    assert not np.array_equal(changed.value_error[1:], plain.value_error[1:])


def test_which_losses_run():
    found = chosen_losses(("mle", "vaml-1-1+td", "cvaml-1-0", "printed-1-0"), (1, 4))
    assert found == (
        ("mle", 1), ("vaml-1-1+td", 1), ("vaml-1-1+td", 4), ("cvaml-1-0", 4), ("printed-1-0", 4),
    )  # fmt: skip


def test_sampled_mode_draws_and_learns():
    """Draws differ from expectations and by seed, and lead to a better policy all the same."""
    settings = {"variants": ("cvaml-1-0",), "k": (4,), "iterations": 2, "steps": 120}
    exact, drawn = (run_cell(only(mode=mode, **settings)) for mode in ("exact", "sampled"))
    assert not np.array_equal(exact.value_error[1:], drawn.value_error[1:])
    last = drawn[drawn.iteration == 2]
    assert last.value_error.nunique() == 2
    assert (last["return"] > -14).all()


def test_a_cell_is_the_same_in_every_study():
    assert only() in cells(dataclasses.replace(SMALL, ranks=(1, 2), temps=(0.5, 0.99)))
    assert len({cell.name for cell in cells(Config())}) == 12


def test_summary_by_hand():
    results = pd.DataFrame(
        {
            "variant": "mle", "k": 1, "rank": 1, "temperature": 0.5, "seed": [0, 1, 2, 3],
            "iteration": 1, "return": [-10.0, -10.0, -20.0, -60.0], "optimal_return": -10.0,
            "value_error": [0.0, 1.0, 2.0, 3.0], "entropy": 1.5,
        }
    )  # fmt: skip
    summary = summarise(results)
    assert ",".join(summary.columns) == COLUMNS
    own = summary.set_index("metric")
    assert own.loc["return", ["mean", "median", "problems"]].tolist() == [-25, -15, 4]
    assert own.loc["regret", "mean"] == 15
    assert own.loc["optimal", "mean"] == 0.5
    assert own.loc["optimal_return", ["mean", "low", "high"]].tolist() == [-10, -10, -10]
    assert -60 <= own.loc["return", "low"] < -25 < own.loc["return", "high"] <= -10


def test_order_of_the_losses_by_hand():
    cell = {"rank": 1, "seed": [0, 1], "optimal_return": -5.0, "value_error": 0.0, "entropy": 0.0}
    good = {"variant": "cvaml-1-0", "k": 4, "return": [-5.0, -6.0], "iteration": 2}
    bad = {"variant": "mle", "k": 1, "return": [-9.0, -9.0], "iteration": 2}
    early = good | {"return": -100.0, "iteration": 1}
    rows = [
        pd.DataFrame(cell | loss | {"temperature": temp})
        for loss in (bad, early, good)
        for temp in (0.5, 0.9)
    ]
    order = rank_losses(pd.concat(rows))
    assert order.label.tolist() == ["cvaml-1-0", "mle"]
    assert order.regret.tolist() == [0.5, 4]
    assert order.optimal.tolist() == [0.5, 0]
    assert order.low.tolist() == [0, 4]
    assert order.high.tolist() == [1, 4]


COMMAND = [
    "cliffwalk", "--ranks", "2", "--temps", "0.5", "0.99", "--variants", "cvaml-1-0", "mle",
    "--seeds", "2", "--iterations", "2", "--steps", "60",
]  # fmt: skip


def test_the_command_completes_and_recomputes_nothing(tmp_path, capsys, monkeypatch):
    out = tmp_path / "c"
    assert cli.main([*COMMAND, "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert "cvaml-1-0" in printed.out
    assert "results.parquet" in printed.out
    assert "left" in printed.err
    names = {"results.parquet", "summary.csv", "figure.png", "figure.pdf", "config.json"}
    assert names <= {path.name for path in out.iterdir()}
    stored = json.loads((out / "config.json").read_text())
    assert stored["study"] == "cliffwalk"
    assert stored["settings"]["device"] in ("cpu", "gpu", "tpu")
    results = pd.read_parquet(out / "results.parquet")
    assert len(results) == 2 * 2 * 2 * 3
    summary = pd.read_csv(out / "summary.csv")
    assert ",".join(summary.columns) == COLUMNS
    assert {"return", "optimal_return"} <= set(summary.metric)
    assert (out / "figure.pdf").read_bytes().startswith(b"%PDF")

    ran = []
    monkeypatch.setattr(
        study, "run_cell", lambda cell, after: ran.append(cell.name) or run_cell(cell, after)
    )
    assert cli.main([*COMMAND, "--out", str(out)]) == 0
    assert capsys.readouterr().out == printed.out
    assert ran == []
    # as if killed: one cell is missing
    for name in ("done.json", "results.parquet", "shards/rank-2-temp-0.99.parquet"):
        (out / name).unlink()
    assert cli.main([*COMMAND, "--out", str(out)]) == 0
    assert ran == ["rank-2-temp-0.99"]
    pd.testing.assert_frame_equal(pd.read_parquet(out / "results.parquet"), results)
    assert short_table(out) in printed.out


def test_a_cell_that_fails_stops_the_command(tmp_path, monkeypatch):
    def fails(cell, after):
        raise RuntimeError("no memory")

    monkeypatch.setattr(study, "run_cell", fails)
    with pytest.raises(RuntimeError, match="no memory"):
        cli.main([*COMMAND, "--out", str(tmp_path / "c")])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ranks": (1, 0)}, "rank must be at least 1, got 0"),
        ({"ranks": ()}, "--ranks needs at least one value"),
        ({"temps": (0.5, 0.5)}, "none twice"),
        ({"temps": (0.0,)}, "above 0 and at most 1, got 0"),
        ({"temps": (1.5,)}, "above 0 and at most 1, got 1.5"),
        ({"variants": ("cvml-1-0",)}, "did you mean 'cvaml-1-0'"),
        ({"variants": ("td3",)}, "does not fit"),
        ({"variants": ("cvaml-1-0+noaux",)}, "does not fit"),
        ({"k": (0,)}, "--k must be at least 1"),
        ({"k": (1,)}, "variant 'cvaml-1-0' needs a --k of at least 2"),
        ({"variants": ("vaml-2-1",), "mode": "sampled"}, "the sampled mode needs m = 1"),
        ({"seeds": 0}, "--seeds must be at least 1"),
        ({"iterations": 0}, "--iterations must be at least 1"),
        ({"steps": -5}, "--steps must be at least 1"),
        ({"gamma": 1.0}, "--gamma must be at least 0 and below 1"),
        ({"spread": -1.0}, "spread must be at least 0"),
        ({"model_step": 0.0}, "--model-step must be positive"),
        ({"value_step": float("nan")}, "--value-step must be positive"),
        ({"seed": -1}, "--seed must be at least 0"),
    ],
)
def test_bad_input_stops_before_any_work(changes, message, tmp_path):
    out = tmp_path / "c"
    with pytest.raises(UserError, match=message):
        study.main(dataclasses.replace(SMALL, out=out, **changes))
    assert not out.exists()


def test_folders_that_cannot_be_used(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert cli.main([*COMMAND, "--out", str(tmp_path / "file" / "c")]) == 2
    assert "cannot create the folder" in capsys.readouterr().err
    RunFolder.open(tmp_path / "other", "garnet", {})
    assert cli.main([*COMMAND, "--out", str(tmp_path / "other")]) == 2
    assert "holds the study 'garnet'" in capsys.readouterr().err
    RunFolder.open(tmp_path / "mine", "cliffwalk", {"steps": 1})
    assert cli.main([*COMMAND, "--out", str(tmp_path / "mine")]) == 2
    assert "holds another configuration" in capsys.readouterr().err
