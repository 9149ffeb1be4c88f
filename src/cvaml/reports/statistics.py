"""Aggregates over runs and tasks as the field defines them, with stratified bootstrap intervals.

Definitions: Agarwal et al., "Deep reinforcement learning at the edge of the statistical
precipice", 2021. Scores are kept per task, because tasks are strata: resampling draws runs within
a task and never mixes tasks, and tasks may have different numbers of runs.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Scores = Mapping[str, NDArray[np.float64]]
"""Task -> scores [..., runs]; leading axes (resamples, steps of a curve) are the same for all."""

Statistic = Callable[[Scores], NDArray[np.float64]]
"""Scores with leading axes [...] -> one number for each of them, [...]."""


def scores_from_matrix(matrix: NDArray[np.float64], tasks: Sequence[str]) -> Scores:
    """A (runs x tasks) matrix as scores per task; NaN marks a run that a task does not have.

    Args:
        matrix: scores, [runs, tasks].
        tasks: the names of the columns.
    """
    matrix = np.asarray(matrix, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[1] != len(tasks):
        raise ValueError(f"expected a matrix [runs, {len(tasks)} tasks], got shape {matrix.shape}")
    return {task: column[~np.isnan(column)] for task, column in zip(tasks, matrix.T, strict=True)}


def mean(scores: Scores) -> NDArray[np.float64]:
    """Mean over tasks of the mean over runs, so every task counts the same."""
    return np.asarray(_task_means(scores).mean(axis=-1))


def median(scores: Scores) -> NDArray[np.float64]:
    """Median over tasks of the mean over runs."""
    return np.asarray(np.median(_task_means(scores), axis=-1))


def iqm(scores: Scores) -> NDArray[np.float64]:
    """Interquartile mean: all runs of all tasks pooled, a quarter cut at each end, then the mean.

    Of n pooled runs, int(n / 4) are cut at each end. A task with more runs weighs more.
    """
    pooled = np.sort(np.concatenate(list(_checked(scores).values()), axis=-1), axis=-1)
    cut = pooled.shape[-1] // 4
    return np.asarray(pooled[..., cut : pooled.shape[-1] - cut].mean(axis=-1))


def optimality_gap(scores: Scores, optimum: float = 1.0) -> NDArray[np.float64]:
    """How far below the optimum: `optimum - mean(min(score, optimum))`; lower is better."""
    return np.asarray(optimum - mean({task: np.minimum(x, optimum) for task, x in scores.items()}))


def probability_of_improvement(ours: Scores, theirs: Scores) -> NDArray[np.float64]:
    """Mean over tasks of P(X > Y) + P(X = Y) / 2, X a run of ours and Y one of theirs.

    Args:
        ours: scores [..., runs] per task.
        theirs: scores of the same tasks, with the same leading axes.

    Returns:
        The probability, [...]; 0.5 when neither is better.
    """
    ours, theirs = _checked(ours), _checked(theirs)
    if ours.keys() != theirs.keys():
        raise ValueError(f"the tasks differ: {sorted(ours)} and {sorted(theirs)}")
    per_task = []
    for task, x in ours.items():
        difference = x[..., :, None] - theirs[task][..., None, :]
        per_task.append(((np.sign(difference) + 1) / 2).mean(axis=(-2, -1)))
    return np.asarray(np.mean(per_task, axis=0))


def performance_profile(scores: Scores, thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of runs above each threshold, averaged over tasks (the run-score distribution).

    Args:
        scores: scores [..., runs] per task.
        thresholds: the scores to exceed, [thresholds].

    Returns:
        Shares in [0, 1], [..., thresholds], falling along the last axis.
    """
    shares = [(x[..., None, :] > thresholds[:, None]).mean(axis=-1) for x in scores.values()]
    return np.asarray(np.mean(shares, axis=0))


def resample(scores: Scores, generator: np.random.Generator, resamples: int) -> Scores:
    """Draws runs with replacement within each task.

    Args:
        scores: scores [..., runs] per task.
        generator: source of the draws; the call advances it.
        resamples: number of bootstrap resamples.

    Returns:
        Scores [..., resamples, runs] per task; one draw of runs holds for all leading axes, so a
        run's curve is drawn as a whole.
    """
    drawn = {}
    for task, x in _checked(scores).items():
        runs = x.shape[-1]
        drawn[task] = x[..., generator.integers(runs, size=(resamples, runs))]
    return drawn


def interval(
    statistic: Statistic,
    scores: Scores,
    generator: np.random.Generator,
    level: float = 0.95,
    resamples: int = 2000,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Stratified percentile bootstrap interval of a statistic.

    Args:
        statistic: scores [..., runs] -> numbers [...].
        scores: scores [..., runs] per task.
        generator: source of the resampling; the call advances it.
        level: coverage.
        resamples: number of bootstrap resamples.

    Returns:
        The lower and the upper ends, each [...].
    """
    return _quantiles(statistic(resample(scores, generator, resamples)), level)


def improvement_interval(
    ours: Scores,
    theirs: Scores,
    generator: np.random.Generator,
    level: float = 0.95,
    resamples: int = 2000,
) -> tuple[float, float]:
    """The same interval for the probability of improvement; both sides are resampled.

    Args:
        ours: scores [runs] per task.
        theirs: scores [runs] of the same tasks.
        generator: source of the resampling; the call advances it.
        level: coverage.
        resamples: number of bootstrap resamples.
    """
    drawn = probability_of_improvement(
        resample(ours, generator, resamples), resample(theirs, generator, resamples)
    )
    low, high = _quantiles(drawn, level)
    return float(low), float(high)


def _task_means(scores: Scores) -> NDArray[np.float64]:
    """Mean over runs of each task, [..., tasks]."""
    return np.stack([x.mean(axis=-1) for x in _checked(scores).values()], axis=-1)


def _checked(scores: Scores) -> dict[str, NDArray[np.float64]]:
    """The scores, if every task has at least one run and every score is a number."""
    found = {task: np.asarray(x, dtype=np.float64) for task, x in scores.items()}
    if not found:
        raise ValueError("no task has any score")
    for task, x in found.items():
        if x.ndim == 0 or x.shape[-1] == 0:
            raise ValueError(f"the task {task!r} has no run")
        if not np.isfinite(x).all():
            raise ValueError(f"the task {task!r} has a score that is not a finite number")
    return found


def _quantiles(
    drawn: NDArray[np.float64], level: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The two ends of the central interval over the last axis."""
    tail = (1 - level) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail], axis=-1)
    return np.asarray(low), np.asarray(high)
