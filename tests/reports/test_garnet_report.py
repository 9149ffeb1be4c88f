"""Intervals, pairs, figure and sentences of the Garnet study, from rows made by hand."""

import numpy as np
import pandas as pd
import pytest

from cvaml.reports.aggregate import bootstrap_means
from cvaml.reports.garnet import (
    findings,
    label,
    panels,
    short_table,
    summarise,
)
from cvaml.reports.garnet_figure import draw_figure

ARMS = {("mle", 1): 1e-1, ("vaml-1-0", 1): 1.0, ("vaml-1-0", 4): 1e-2, ("cvaml-1-0", 4): 1e-6}


def made_rows(rank=2, temperature=1.0, problems=20):
    """Errors of known size: every arm has its own, problem i multiplies it by 1 + i / problems."""
    rows = []
    for (variant, k), error in ARMS.items():
        for problem in range(problems):
            size = error * (1 + problem / problems)
            rows.append(
                {
                    "study": "garnet",
                    "problem": problem,
                    "variant": variant,
                    "k": k,
                    "rank": rank,
                    "temperature": temperature,
                    "iteration": np.nan,
                    **dict.fromkeys(
                        ("mse", "nmse", "onestep_mse", "onestep_nmse", "model_bias"), size
                    ),
                    **dict.fromkeys(("bellman_gap", "model_variance", "entropy"), 0.5),
                    "steps": 500,
                    "converged": problem % 4 != 0,
                }
            )
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def tables():
    parts = [summarise(made_rows(rank, t)) for rank in (1, 2, 5) for t in (0.1, 1.0)]
    return pd.concat([p[0] for p in parts]), pd.concat([p[1] for p in parts])


def test_resampling_is_shared_by_the_columns(generator):
    samples = generator.standard_normal((30, 1))
    means = bootstrap_means(np.concatenate([samples, samples + 2], axis=1), generator, 100)
    np.testing.assert_allclose(means[:, 1] - means[:, 0], 2)
    spread = means[:, 0].std()
    assert 0.5 < spread / (samples.std() / np.sqrt(30)) < 1.5


def test_pieces_bound_the_memory_and_keep_the_count(generator, monkeypatch):
    monkeypatch.setattr("cvaml.reports.aggregate._PIECE", 100)
    assert bootstrap_means(np.ones((30, 2)), generator, 101).shape == (101, 2)


def test_summary_by_hand(tables):
    summary, _ = tables
    row = summary.query(
        "variant == 'mle' and metric == 'nmse' and rank == 2 and temperature == 1"
    ).iloc[0]
    assert row["mean"] == pytest.approx(0.1 * (1 + 9.5 / 20))
    assert row["median"] == pytest.approx(row["mean"])
    assert row["low"] < row["mean"] < row["high"]
    assert row["problems"] == 20
    share = summary.query("variant == 'mle' and metric == 'unconverged' and rank == 2")
    np.testing.assert_allclose(share["mean"], 0.25)


def test_pairs_by_hand(tables):
    _, paired = tables
    row = paired.query(
        "variant == 'cvaml-1-0' and against == 'mle' and rank == 2 and temperature == 1"
    ).iloc[0]
    # The same factor multiplies both, so the difference is -5 for every problem.
    assert row["log10_difference"] == pytest.approx(-5)
    assert (row["low"], row["high"]) == pytest.approx((-5, -5))
    assert row["win_rate"] == 1


def test_rounding_counts_as_a_tie():
    rows = made_rows()
    rows["nmse"] = rows["nmse"] * 1e-12
    _, paired = summarise(rows)
    assert (paired["win_rate"] == 0.5).all()


def test_findings_name_the_best_and_its_numbers(tables):
    sentences = findings(*tables)
    assert "τ = 1, rank 2) cvaml-1-0 has the lowest mean error" in sentences[0]
    assert "below mle on 100 % of 20 problems" in sentences[0]
    assert "vaml-1-0 (k=4) 0.015 [" in sentences[0]
    assert sentences[1].startswith("In the most deterministic problems (τ = 0.1, rank 2)")


def test_table_has_every_arm(tables):
    text = short_table(tables[0])
    assert text.count("rank ") == 3
    assert text.count("vaml-1-0 (k=1)") == 3


def test_panels_are_spread_over_what_is_there():
    assert panels(pd.Series([1, 2, 3, 5, 10, 20])) == [1, 3, 20]
    assert panels(pd.Series([4, 4])) == [4]


def test_labels(tables):
    assert label("mle", 1) == "mle"
    assert label("cvaml-1-0", 4, tables[0]) == "cvaml-1-0"
    assert label("vaml-1-0", 4, tables[0]) == "vaml-1-0 (k=4)"


def test_figure_has_both_rows_and_every_arm(tables):
    figure = draw_figure(tables[0])
    titles = [axis.get_title() for axis in figure.axes if axis.get_title()]
    assert titles == [
        "temperature τ = 0.1", "temperature τ = 1", "rank 1", "rank 2", "rank 5",
    ]  # fmt: skip
    first = figure.axes[0]
    assert len(first.get_legend_handles_labels()[1]) == len(ARMS)
    assert first.get_yscale() == "log"
    mle = next(line for line in first.lines if line.get_label() == "mle")
    np.testing.assert_allclose(mle.get_ydata(), 0.1 * (1 + 9.5 / 20))
