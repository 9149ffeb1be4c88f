"""Charts and tables of agent runs: returns, sample efficiency, diagnostics, ablations."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from cvaml.reports import statistics
from cvaml.reports.charts import Chart, Item, Panel, Section, Series, Table, View
from cvaml.reports.comparison import (
    BEST_RETURN,
    ENOUGH_RUNS,
    STEPS,
    aggregate_bars,
    improvement_table,
    profile_chart,
    returns_table,
)
from cvaml.reports.curves import (
    Curve,
    by_label,
    cells,
    complete,
    is_ablation,
    metric_names,
    note,
    numbered_labels,
    on_common_steps,
    read_curves,
    task_sets,
)
from cvaml.reports.published import ALL_TASKS, SOURCE, published_returns
from cvaml.reports.reading import Run


def control_section(runs: Sequence[Run], generator: np.random.Generator) -> Section | None:
    """Everything about the agent runs, or None if there are none.

    Args:
        runs: run folders of any kind.
        generator: source of the bootstrap; the call advances it.
    """
    curves = read_curves(runs, "eval_return")
    if not curves:
        return None
    scored = _scored(curves)
    published = published_returns()
    published = published[published["task"].isin({*(c.task for c in curves), ALL_TASKS})]
    items: list[Item | None] = [
        returns_table(curves, published, generator),
        aggregate_bars(scored, generator),
        efficiency_chart(scored, published, generator),
        task_chart(curves, published, generator),
        ablation_chart(curves, generator),
        profile_chart(scored, generator),
        improvement_table(curves, generator),
        *diagnostics_charts(runs, generator),
        metrics_chart(runs),
        names_table(runs),
    ]
    few = min(len({c.run for c in own}) for own in cells(curves).values())
    return Section(
        "control",
        "Continuous control",
        f"Returns of evaluation episodes, one seed a run. Intervals are stratified 95 % bootstrap "
        f"intervals over runs. With fewer than {ENOUGH_RUNS} runs of a task no verdict is given; "
        f"the smallest number here is {few}. A curve over several runs ends where the shortest "
        f"of them ends. {SOURCE if (published['task'] != ALL_TASKS).any() else ''}",
        [item for item in items if item is not None],
    )


def _mean_series(
    label: str,
    curves: Sequence[Curve],
    statistic: statistics.Statistic,
    generator: np.random.Generator,
) -> Series | None:
    found = on_common_steps(curves)
    if found is None:
        return None
    steps, scores = found
    low, high = statistics.interval(statistic, scores, generator, resamples=400)
    return Series(
        label, steps.tolist(), statistic(scores).tolist(), low.tolist(), high.tolist(), note(curves)
    )


def _published_series(published: pd.DataFrame, task: str, last: float) -> list[Series]:
    rows = published[(published["task"] == task) & (published["env_step"] <= last)]
    return [
        Series(
            str(method),
            own["env_step"].tolist(),
            own["mean"].tolist(),
            own["low"].tolist(),
            own["high"].tolist(),
            f"{own['runs'].min()} runs",
            "published",
        )
        for method, own in rows.groupby("method")
    ]


def _are_published(tasks: Sequence[str], published: pd.DataFrame) -> bool:
    """Whether these are exactly the tasks that the published means average."""
    return set(tasks) == set(published["task"]) - {ALL_TASKS} and len(tasks) == 7


def _horizon(curves: Sequence[Curve]) -> float:
    """How far published curves are shown behind ours: as far as the longest run."""
    return max(float(curve.steps[-1]) for curve in curves)


def efficiency_chart(
    curves: Sequence[Curve], published: pd.DataFrame, generator: np.random.Generator
) -> Chart | None:
    """Sample efficiency: aggregated return against environment steps."""
    main = [curve for curve in curves if not is_ablation(curve.label)]
    views = []
    for title, tasks in task_sets(main).items():
        groups = complete(main, tasks)
        for name, statistic in (("mean", statistics.mean), ("IQM", statistics.iqm)):
            found = [
                _mean_series(label, own, statistic, generator) for label, own in groups.items()
            ]
            series = [one for one in found if one is not None]
            if series and name == "mean" and _are_published(tasks, published):
                series += _published_series(published, ALL_TASKS, _horizon(main))
            if series:
                views.append(View(f"{title}: {name}", [Panel("", series)], STEPS, f"{name} return"))
    if not views:
        return None
    caption = "Return over training, aggregated over tasks and runs; bands are 95 % intervals."
    return Chart("sample-efficiency", "Sample efficiency", caption, views)


def task_chart(
    curves: Sequence[Curve], published: pd.DataFrame, generator: np.random.Generator
) -> Chart:
    """One panel per task: means with intervals, single runs, and published methods behind."""
    panels = []
    for task in sorted({curve.task for curve in curves}):
        here = [curve for curve in curves if curve.task == task]
        series = _published_series(published, task, _horizon(curves))
        for label, own in by_label(here).items():
            one = _mean_series(label, own, statistics.mean, generator)
            series += [one] if one is not None else []
            series += [
                Series(label, c.steps.tolist(), c.values.tolist(), role="run", note=c.run)
                for c in own
            ]
        panels.append(Panel(task, series))
    caption = "Mean return of each task over runs, with 95 % intervals; single runs can be added."
    shared = len(_scored(curves)) == len(curves)
    view = View("mean return", panels, STEPS, "return", shared_y=shared)
    return Chart("tasks", "Returns by task", caption, [view])


def ablation_chart(curves: Sequence[Curve], generator: np.random.Generator) -> Chart | None:
    """What is lost without the auxiliary loss, without the value-aware loss, without a model."""
    if not any(is_ablation(curve.label) for curve in curves):
        return None
    panels = []
    whole = {"cvaml-1-0", "cvaml-1-1"}
    shown = [c for c in curves if is_ablation(c.label) or c.label.split(" ")[0] in whole]
    sets = task_sets(shown) or {task: [task] for task in sorted({c.task for c in shown})}
    for title, tasks in sets.items():
        found = [
            _mean_series(label, own, statistics.mean, generator)
            for label, own in complete(shown, tasks).items()
        ]
        panels.append(Panel(title, [one for one in found if one is not None]))
    caption = (
        "Mean return without the auxiliary loss, without the value-aware loss, and without a model."
    )
    view = View("mean return", [p for p in panels if p.series], STEPS, "return")
    return Chart("ablations", "Ablations", caption, [view]) if view.panels else None


def diagnostics_charts(runs: Sequence[Run], generator: np.random.Generator) -> list[Chart]:
    """Model entropy and value-aware error, averaged over tasks."""
    charts = []
    for metric, title, caption in (
        (
            "model_entropy",
            "Model entropy",
            "Entropy of the latent model, mean over tasks and runs.",
        ),
        (
            "vaml_error",
            "Value-aware error",
            "Unbiased estimate of (E V - target)² on the same replay batches for every variant, "
            "mean over tasks and runs.",
        ),
    ):
        views = []
        curves = read_curves(runs, metric)
        single = {task: [task] for task in sorted({c.task for c in curves})}
        for group, tasks in (task_sets(curves) | single).items():
            found = [
                _mean_series(label, own, statistics.mean, generator)
                for label, own in complete(curves, tasks).items()
            ]
            series = [one for one in found if one is not None]
            if series:
                views.append(View(group, [Panel("", series)], STEPS, title.lower()))
        if views:
            charts.append(Chart(metric.replace("_", "-"), title, caption, views))
    return charts


def metrics_chart(runs: Sequence[Run]) -> Chart | None:
    """Every other metric that the agents logged: mean over runs, a panel per task."""
    views = []
    shown = ("eval_return", "model_entropy", "vaml_error")
    for metric in (name for name in metric_names(runs) if name not in shown):
        panels: dict[str, list[Series]] = {}
        for (label, task), own in sorted(cells(read_curves(runs, metric)).items()):
            found = on_common_steps(own, most=30)
            if found is not None:
                steps, scores = found
                means = statistics.mean(scores)
                panels.setdefault(task, []).append(
                    Series(label, steps.tolist(), means.tolist(), note=note(own))
                )
        if panels:
            found_panels = [Panel(task, series) for task, series in panels.items()]
            views.append(View(metric, found_panels, STEPS, metric, shared_y=False))
    if not views:
        return None
    caption = (
        "Everything else that was logged while learning: the mean over runs, one metric a view."
    )
    return Chart("metrics", "Other metrics", caption, views)


def names_table(runs: Sequence[Run]) -> Table | None:
    """What the names with a number of settings stand for."""
    rows = [[label, meaning] for label, meaning in numbered_labels(runs).items()]
    caption = "Runs of one variant that differ in many settings are numbered."
    return Table("names", "Settings", caption, ["name", "settings"], rows) if rows else None


def _scored(curves: Sequence[Curve]) -> list[Curve]:
    """The curves of tasks whose returns lie between 0 and the best: only those have scores."""
    outside = {c.task for c in curves if c.values.min() < 0 or c.values.max() > BEST_RETURN}
    return [curve for curve in curves if curve.task not in outside]
