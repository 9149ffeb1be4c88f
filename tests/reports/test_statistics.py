"""Aggregates against numbers worked by hand and the published definitions."""

import numpy as np
import pytest
from scipy import stats

from cvaml.reports import statistics

# Two tasks with four and two runs.
SCORES = {"a": np.array([0.1, 0.2, 0.3, 0.8]), "b": np.array([0.5, 1.5])}


def test_mean_counts_every_task_the_same():
    assert statistics.mean(SCORES) == pytest.approx((0.35 + 1.0) / 2)


def test_median_is_over_the_means_of_the_tasks():
    three = {**SCORES, "c": np.array([0.4])}  # task means 0.35, 1.0, 0.4
    assert statistics.median(three) == pytest.approx(0.4)


def test_iqm_cuts_a_quarter_of_the_pooled_runs_at_each_end():
    # six pooled runs 0.1 0.2 0.3 0.5 0.8 1.5: int(6 / 4) = 1 cut at each end
    assert statistics.iqm(SCORES) == pytest.approx((0.2 + 0.3 + 0.5 + 0.8) / 4)


def test_iqm_is_scipys_trimmed_mean_of_the_matrix(generator):
    matrix = generator.normal(size=(7, 5))
    scores = statistics.scores_from_matrix(matrix, list("abcde"))
    assert statistics.iqm(scores) == pytest.approx(stats.trim_mean(matrix, 0.25, axis=None))


def test_optimality_gap_gives_no_credit_above_the_optimum():
    # task a: mean 0.35; task b: 0.5 and min(1.5, 1) = 1, mean 0.75
    assert statistics.optimality_gap(SCORES) == pytest.approx(1 - (0.35 + 0.75) / 2)
    assert statistics.optimality_gap(SCORES, optimum=2.0) == pytest.approx(2 - 0.675)


def test_probability_of_improvement_counts_ties_half():
    ours = {"a": np.array([1.0, 2.0, 3.0]), "b": np.array([0.0])}
    theirs = {"a": np.array([2.0, 0.0]), "b": np.array([1.0, 2.0])}
    # a: pairs (1,2)- (1,0)+ (2,2)= (2,0)+ (3,2)+ (3,0)+ -> 4.5 / 6; b: none of two
    assert statistics.probability_of_improvement(ours, theirs) == pytest.approx(4.5 / 6 / 2)
    assert statistics.probability_of_improvement(ours, ours) == pytest.approx(0.5)


def test_probability_of_improvement_is_the_mann_whitney_statistic(generator):
    x, y = generator.normal(size=9).round(1), generator.normal(size=6).round(1)
    u = stats.mannwhitneyu(x, y, method="asymptotic").statistic
    assert statistics.probability_of_improvement({"t": x}, {"t": y}) == pytest.approx(u / 54)


def test_probability_of_improvement_needs_the_same_tasks():
    with pytest.raises(ValueError, match="tasks differ"):
        statistics.probability_of_improvement(SCORES, {"a": np.array([1.0])})


def test_performance_profile_counts_strictly_above():
    profile = statistics.performance_profile(SCORES, np.array([0.0, 0.2, 0.5, 2.0]))
    # a: 1, 1/2, 1/4, 0; b: 1, 1, 1/2, 0
    np.testing.assert_allclose(profile, [1.0, 0.75, 0.375, 0.0])


def test_matrix_columns_lose_their_missing_runs():
    scores = statistics.scores_from_matrix(np.array([[1.0, 2.0], [3.0, np.nan]]), ["a", "b"])
    np.testing.assert_array_equal(scores["a"], [1.0, 3.0])
    np.testing.assert_array_equal(scores["b"], [2.0])
    with pytest.raises(ValueError, match="shape"):
        statistics.scores_from_matrix(np.zeros(3), ["a"])


def test_resampling_stays_within_the_task(generator):
    drawn = statistics.resample({"a": np.array([1.0, 2.0]), "b": np.array([10.0])}, generator, 50)
    assert drawn["a"].shape == (50, 2)
    assert set(np.unique(drawn["a"])) == {1.0, 2.0}
    np.testing.assert_array_equal(drawn["b"], np.full((50, 1), 10.0))


def test_resampling_draws_whole_curves(generator):
    curves = np.array([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]])  # [steps, runs]
    drawn = statistics.resample({"a": curves}, generator, 20)["a"]
    np.testing.assert_array_equal(drawn[1], 10 * drawn[0])


def test_every_statistic_keeps_leading_axes(generator):
    batch = {"a": generator.normal(size=(3, 2, 4)), "b": generator.normal(size=(3, 2, 5))}
    for statistic in (
        statistics.mean,
        statistics.median,
        statistics.iqm,
        statistics.optimality_gap,
    ):
        one = statistic({task: x[1, 0] for task, x in batch.items()})
        np.testing.assert_allclose(statistic(batch)[1, 0], one)
    assert statistics.performance_profile(batch, np.zeros(6)).shape == (3, 2, 6)


def test_interval_of_equal_runs_is_a_point(generator):
    same = {"a": np.full(5, 0.3), "b": np.full(3, 0.7)}
    low, high = statistics.interval(statistics.mean, same, generator, resamples=50)
    assert (low, high) == (pytest.approx(0.5), pytest.approx(0.5))


def test_interval_covers_the_mean_as_often_as_it_says(generator):
    hits = 0
    for _ in range(200):
        scores = {task: generator.normal(size=30) for task in "ab"}
        low, high = statistics.interval(statistics.mean, scores, generator, resamples=400)
        hits += low <= 0 <= high
    assert 0.88 <= hits / 200 <= 0.99


def test_interval_of_a_curve_has_one_pair_of_ends_per_step(generator):
    curves = {"a": np.arange(12.0).reshape(3, 4)}
    low, high = statistics.interval(statistics.iqm, curves, generator, resamples=100)
    assert low.shape == high.shape == (3,)
    assert (low <= statistics.iqm(curves)).all()
    assert (statistics.iqm(curves) <= high).all()


def test_the_same_generator_gives_the_same_interval():
    first = statistics.interval(statistics.iqm, SCORES, np.random.default_rng(1))
    second = statistics.interval(statistics.iqm, SCORES, np.random.default_rng(1))
    other = statistics.interval(statistics.iqm, SCORES, np.random.default_rng(2), resamples=10)
    assert first == second
    assert first != other


def test_improvement_interval_of_separated_runs_is_one(generator):
    above, below = {"a": np.array([2.0, 3.0])}, {"a": np.array([0.0, 1.0])}
    assert statistics.improvement_interval(above, below, generator) == (1.0, 1.0)
    low, high = statistics.improvement_interval(SCORES, SCORES, generator)
    assert low < 0.5 < high


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ({}, "no task"),
        ({"a": np.array([])}, "'a' has no run"),
        ({"a": np.array([1.0, np.nan])}, "not a finite"),
    ],
)
def test_bad_scores_are_named(scores, said):
    with pytest.raises(ValueError, match=said):
        statistics.mean(scores)
