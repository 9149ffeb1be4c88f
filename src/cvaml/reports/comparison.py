"""What runs reach at equal numbers of environment steps: tables, bars, profiles."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from cvaml.reports import statistics
from cvaml.reports.charts import Cell, Chart, Panel, Series, Table, View
from cvaml.reports.curves import (
    Curve,
    at_least,
    by_label,
    complete,
    note,
    scores_at,
    task_sets,
)
from cvaml.reports.published import ALL_TASKS

BEST_RETURN = 1000.0
"""The largest return a dm_control task can give; scores are returns divided by it."""

ENOUGH_RUNS = 5
"""With fewer runs per task no verdict is given."""

STEPS = "environment steps"

_STATISTICS = {
    "IQM": statistics.iqm,
    "Mean": statistics.mean,
    "Median": statistics.median,
    "Optimality gap (lower is better)": statistics.optimality_gap,
}
_LANDMARKS = (100_000, 200_000, 500_000, 1_000_000, 2_000_000)
_RESAMPLES = 1000


def returns_table(
    curves: Sequence[Curve], published: pd.DataFrame, generator: np.random.Generator
) -> Table:
    """Mean returns per task at the landmark steps, beside the published ones."""
    tasks = sorted({curve.task for curve in curves})
    rows: list[list[Cell]] = []
    for step in _reached(curves):
        for label, own in by_label(curves).items():
            here = [c for c in own if c.steps[0] <= step <= c.steps[-1]]
            if len(here) < len(own):
                continue
            scores = scores_at(here, step)
            cells: list[Cell] = [
                _estimate({t: scores[t]}, generator) if t in scores else None for t in tasks
            ]
            overall: Cell = _estimate(scores, generator) if len(scores) == len(tasks) else None
            rows.append(
                [label, "here", step, min(len(x) for x in scores.values()), overall, *cells]
            )
        at = published[published["env_step"] == step]
        for method, group in at.groupby("method"):
            by_task = group.set_index("task")
            means: list[Cell] = [_published_cell(by_task, task) for task in tasks]
            overall = _published_overall(by_task, tasks)
            rows.append([str(method), "published", step, int(group["runs"].min()), overall, *means])
    rows.sort(key=_best_first)
    return Table(
        "returns",
        "Returns",
        "Mean return [95 % interval] at equal numbers of environment steps; runs is the smallest "
        "number of runs of a task.",
        ["method", "from", "environment steps", "runs", "mean of tasks", *tasks],
        rows,
    )


def aggregate_bars(curves: Sequence[Curve], generator: np.random.Generator) -> Chart | None:
    """IQM, mean, median and optimality gap over tasks, for every set of tasks and landmark."""
    views = []
    for title, tasks in task_sets(curves).items():
        for step in reversed(_reached([c for c in curves if c.task in tasks])):
            groups = at_least(complete(curves, tasks), step)
            panels = []
            for name, statistic in _STATISTICS.items():
                bars = []
                for label, own in groups.items():
                    scores = {t: x / BEST_RETURN for t, x in scores_at(own, step).items()}
                    low, high = statistics.interval(
                        statistic, scores, generator, resamples=_RESAMPLES
                    )
                    value = [float(statistic(scores))]
                    bars.append(
                        Series(label, [step], value, [float(low)], [float(high)], note(own))
                    )
                panels.append(Panel(name, bars))
            if groups:
                views.append(View(f"{title} at {step:,} {STEPS}", panels))
    if not views:
        return None
    caption = (
        f"Scores are returns divided by {BEST_RETURN:.0f}. IQM: the mean of the middle half of all "
        "runs pooled. A variant appears where it has every task and all its runs reached the step."
    )
    return Chart("aggregates", "Aggregate scores", caption, views, kind="bars")


def profile_chart(curves: Sequence[Curve], generator: np.random.Generator) -> Chart | None:
    """Performance profiles: the share of runs above each score."""
    thresholds = np.linspace(0, 1, 51)
    views = []
    for title, tasks in task_sets(curves).items():
        step = _reached([c for c in curves if c.task in tasks])[-1]
        series = []
        for label, own in at_least(complete(curves, tasks), step).items():
            scores = {t: x / BEST_RETURN for t, x in scores_at(own, step).items()}
            drawn = statistics.resample(scores, generator, _RESAMPLES)
            profiles = statistics.performance_profile(drawn, thresholds)
            low, high = np.quantile(profiles, [0.025, 0.975], axis=0)
            middle = statistics.performance_profile(scores, thresholds)
            series.append(
                Series(
                    label,
                    thresholds.tolist(),
                    middle.tolist(),
                    low.tolist(),
                    high.tolist(),
                    note(own),
                )
            )
        if series:
            label = f"{title} at {step:,} {STEPS}"
            views.append(View(label, [Panel("", series)], "score τ", "share of runs above τ"))
    if not views:
        return None
    caption = "Share of runs whose score exceeds τ, averaged over tasks: higher curves are better."
    return Chart("profiles", "Performance profiles", caption, views)


def improvement_table(curves: Sequence[Curve], generator: np.random.Generator) -> Table | None:
    """Probability of improvement of every pair of labels on the tasks both have."""
    rows: list[list[Cell]] = []
    groups = by_label(curves)
    labels = list(groups)
    for i, first in enumerate(labels):
        for second in labels[i + 1 :]:
            tasks = {c.task for c in groups[first]} & {c.task for c in groups[second]}
            pair = [c for c in groups[first] + groups[second] if c.task in tasks]
            if not pair or min(c.steps[-1] for c in pair) < max(c.steps[0] for c in pair):
                continue
            step = min(c.steps[-1] for c in pair)
            ours, theirs = (
                scores_at([c for c in groups[label] if c.task in tasks], step)
                for label in (first, second)
            )
            value = float(statistics.probability_of_improvement(ours, theirs))
            ends = statistics.improvement_interval(ours, theirs, generator, resamples=_RESAMPLES)
            runs = min(len(x) for x in [*ours.values(), *theirs.values()])
            said = "not enough runs"
            if runs >= ENOUGH_RUNS:
                said = first if ends[0] > 0.5 else second if ends[1] < 0.5 else "undecided"
            rows.append([first, second, (value, *ends), len(tasks), runs, step, said])
    if not rows:
        return None
    return Table(
        "improvement",
        "Probability of improvement",
        "P(X > Y) + P(X = Y)/2 for a run of X and one of Y, averaged over the tasks both have, at "
        "the last step both reached; better where the 95 % interval leaves 0.5.",
        ["X", "Y", "P(X better)", "tasks", "runs", "environment steps", "better"],
        rows,
    )


def _best_first(row: Sequence[Cell]) -> tuple[float, float]:
    """Sorting of the returns: the latest step first, there the highest mean."""
    overall = row[4] if row[4] is not None else row[5]
    mean = overall[0] if isinstance(overall, tuple) else overall
    mean = mean if isinstance(mean, (int, float)) else -np.inf
    return -float(row[2] if isinstance(row[2], (int, float)) else 0), -mean


def _estimate(
    scores: statistics.Scores, generator: np.random.Generator
) -> tuple[float, float, float]:
    low, high = statistics.interval(statistics.mean, scores, generator, resamples=_RESAMPLES)
    return float(statistics.mean(scores)), float(low), float(high)


def _published_cell(by_task: pd.DataFrame, task: str) -> Cell:
    if task not in by_task.index:
        return None
    mean, low, high = by_task.loc[[task], ["mean", "low", "high"]].to_numpy(np.float64)[0]
    return float(mean), float(low), float(high)


def _published_overall(by_task: pd.DataFrame, tasks: Sequence[str]) -> Cell:
    """The mean of these tasks; its interval is known only where they are all seven."""
    if len(tasks) == 7:
        return _published_cell(by_task, ALL_TASKS)
    if not set(tasks) <= set(by_task.index):
        return None
    return float(by_task.loc[list(tasks), "mean"].mean())


def _reached(curves: Sequence[Curve]) -> list[int]:
    """The landmarks that some label has reached with all its runs, and where each label ends."""
    ends = {int(min(c.steps[-1] for c in own)) for own in by_label(curves).values()}
    return sorted({*(mark for mark in _LANDMARKS if mark <= max(ends)), *ends})
