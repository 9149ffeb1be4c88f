"""Charts and tables of the tabular studies, from the `summary.csv` of their run folders."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from cvaml.reports.charts import Cell, Chart, Item, Panel, Section, Series, Table, View
from cvaml.reports.reading import Run

_TITLES = {"garnet": "Garnet problems", "cliffwalk": "Cliffwalk"}
_LEADS = {
    "garnet": "Random finite problems with a model of limited rank: how wrong is the value that "
    "each loss leads to, as the kernel becomes more random and the model less able?",
    "cliffwalk": "Policy iteration on a stochastic cliff: what return does the policy reach that "
    "was learned with each loss?",
}
_AXES = {"rank": "rank of the model", "temperature": "temperature"}
_FIRST = ("nmse", "return")  # the metrics the figures of the paper show
_METRICS = {"nmse": "value error / Var(V)", "mse": "squared value error"}
_CELL = ["rank", "temperature", "iteration"]
_MOST_ROWS = 4000


def study_section(run: Run, key: str) -> Section:
    """Charts where the summary has means over ranks, temperatures or iterations; its table.

    Args:
        run: a run folder with a summary.
        key: the anchor on the page, and the start of the keys of its charts.
    """
    assert run.summary is not None
    items: list[Item] = [*summary_charts(run.summary, key), summary_table(run.summary, key)]
    title = _TITLES.get(run.study, run.study)
    return Section(key, title, _LEADS.get(run.study, ""), items)


def summary_charts(summary: pd.DataFrame, key: str) -> list[Chart]:
    """The charts that the columns of a summary allow.

    Args:
        summary: columns `variant`, `metric`, `mean`, `low`, `high`, and some of `k`, `rank`,
            `temperature`, `iteration`, `median`, `problems`.
        key: start of the charts' keys.

    Returns:
        Curves over rank, over temperature and over iterations; bars where nothing varies.
    """
    if not {"variant", "metric", "mean", "low", "high"} <= set(summary):
        return []
    table = _labelled(summary).sort_values("metric", key=_not_first, kind="stable")
    varying = [name for name in _CELL if name in table and table[name].nunique() > 1]
    last = _last(table)
    charts = []
    if "iteration" in varying:
        panels = [name for name in ("rank", "temperature") if name in table]
        views = _views(table, "iteration", panels)
        charts.append(Chart(f"{key}-learning", "Over iterations", _caption(table), views))
    for axis, other in (("rank", "temperature"), ("temperature", "rank")):
        if axis in varying:
            views = _views(last, axis, [other] if other in table else [])
            title = f"By {_AXES[axis]}"
            charts.append(Chart(f"{key}-{axis}", title, _caption(last), views))
    if not varying:
        charts.append(Chart(f"{key}-bars", "By variant", _caption(last), _bars(last), "bars"))
    return charts


def summary_table(summary: pd.DataFrame, key: str) -> Table:
    """The summary as a table; means carry their intervals, the last iteration only."""
    table = _last(summary) if "iteration" in summary else summary
    if "metric" in table:
        table = table.sort_values("metric", key=_not_first, kind="stable")
    table = table.dropna(axis=1, how="all")
    merged = {"mean", "low", "high"} <= set(table)
    hidden = {"low", "high", "study"} if merged else {"study"}
    columns = [str(name) for name in table.columns if name not in hidden]
    rows: list[list[Cell]] = []
    for record in table.head(_MOST_ROWS).to_dict("records"):
        cells = [_cell(record[name]) for name in columns]
        if merged and columns.count("mean"):
            mean, low, high = (float(record[name]) for name in ("mean", "low", "high"))
            cells[columns.index("mean")] = (mean, low, high)
        rows.append(cells)
    caption = "Means carry their 95 % interval in brackets." if merged else ""
    if len(table) > _MOST_ROWS:
        caption += f" The first {_MOST_ROWS} of {len(table)} rows; all are in summary.csv."
    return Table(f"{key}-table", "Summary", caption, columns, rows)


def _not_first(metrics: pd.Series) -> pd.Series:
    return ~metrics.isin(_FIRST)


def _labelled(summary: pd.DataFrame) -> pd.DataFrame:
    """The summary with a column `label`: the variant, with k where one variant has several."""
    table = summary.copy()
    label = table["variant"].astype(str)
    if "k" in table:
        several = table.groupby("variant")["k"].transform("nunique") > 1
        label = label.where(~several, label + " k=" + table["k"].map(lambda k: f"{k:g}"))
    return table.assign(label=label)


def _last(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of the last iteration of each cell."""
    if "iteration" not in table:
        return table
    cell = [name for name in ("variant", "k", "rank", "temperature", "metric") if name in table]
    last = table.groupby(cell, dropna=False)["iteration"].transform("max")
    return table[(table["iteration"] == last) | table["iteration"].isna()]


def _views(table: pd.DataFrame, axis: str, panels: Sequence[str]) -> list[View]:
    """One view per metric and statistic: a panel per value of `panels`, `axis` along x."""
    views = []
    for metric, rows in table.groupby("metric", sort=False):
        for column in ("mean", "median"):
            if column not in rows or rows[column].isna().all():
                continue
            groups = rows.groupby(list(panels)) if panels else [((), rows)]
            found = [
                Panel(_panel_title(panels, key), _series(own, axis, column)) for key, own in groups
            ]
            views.append(
                View(
                    f"{metric}, {column}",
                    found,
                    _AXES.get(axis, axis),
                    _METRICS.get(str(metric), str(metric)),
                    x_log=axis != "iteration" and _spread(rows[axis]) > 8,
                    y_log=_spread(rows[column]) > 50,
                )
            )
    return views


def _panel_title(panels: Sequence[str], key: object) -> str:
    values = key if isinstance(key, tuple) else (key,)
    return ", ".join(f"{name} {value:g}" for name, value in zip(panels, values, strict=True))


def _series(rows: pd.DataFrame, axis: str, column: str) -> list[Series]:
    found = []
    for label, own in rows.groupby("label", sort=False):
        own = own.sort_values(axis)
        interval = column == "mean"  # the interval belongs to the mean
        note = f"{own['problems'].min():g} problems" if "problems" in own else ""
        found.append(
            Series(
                str(label),
                own[axis].astype(float).tolist(),
                own[column].astype(float).tolist(),
                own["low"].astype(float).tolist() if interval else None,
                own["high"].astype(float).tolist() if interval else None,
                note,
            )
        )
    return found


def _bars(table: pd.DataFrame) -> list[View]:
    views = []
    for metric, rows in table.groupby("metric", sort=False):
        bars = [
            Series(
                str(r["label"]), [0.0], [float(r["mean"])], [float(r["low"])], [float(r["high"])]
            )
            for r in rows.to_dict("records")
        ]
        views.append(View(str(metric), [Panel(str(metric), bars)]))
    return views


def _caption(table: pd.DataFrame) -> str:
    counts = ""
    if "problems" in table and table["problems"].notna().any():
        low, high = table["problems"].min(), table["problems"].max()
        counts = f" over {low:g}{'' if low == high else f' to {high:g}'} problems a cell"
    return f"Means{counts}; bands are 95 % bootstrap intervals. The median is the other view."


def _spread(values: pd.Series) -> float:
    """Largest over smallest value; 1 if any is not positive."""
    numbers = values.dropna().to_numpy(np.float64)
    return float(numbers.max() / numbers.min()) if numbers.size and numbers.min() > 0 else 1.0


def _cell(value: object) -> Cell:
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (int, float, np.integer, np.floating)):
        number = float(value)
        return None if np.isnan(number) else int(number) if number.is_integer() else number
    return None if value is None or value is pd.NA else str(value)
