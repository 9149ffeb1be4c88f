"""The calibration study on the page: Table 1, regret over samples and horizon, the checks."""

import pandas as pd

from cvaml.reports.charts import Chart, Item, Panel, Section, Series, Table, View
from cvaml.reports.summaries import summary_table

_TITLES = {
    "table": "Table 1 of the paper, recomputed",
    "horizon": "Longer horizons",
    "samples": "Regret against the number of samples",
    "rollout": "Multi-step rollouts of deterministic models",
    "gradients": "Gradients at the true model",
    "fixed_point": "Fixed points of the value update",
}
_CAPTIONS = {
    "table": "Excess is the target loss at the surrogate's minimiser minus the least in the class; "
    "a loss is calibrated if the largest excess over all problems is zero, up to rounding.",
}
_NAMES = {"none": "vaml-1-0", "unbiased": "cvaml-1-0", "printed": "printed-1-0"}
_ROUNDING = 1e-14
"""Regrets below this are rounding."""
_COLUMNS = {"part", "metric", "mean", "low", "high", "kind"}


def is_theory(summary: pd.DataFrame) -> bool:
    """Whether a summary is one of the calibration study."""
    return set(summary) >= _COLUMNS


def theory_section(summary: pd.DataFrame, checks: pd.DataFrame | None, key: str) -> Section:
    """Charts where a quantity varies with k or m, a table for every part, the checks.

    Args:
        summary: the study's `summary.csv`.
        checks: its `checks.csv`, where there is one.
        key: the anchor on the page, and the start of the keys of its items.
    """
    charts = [_samples_chart(summary, key), _horizon_chart(summary, key)]
    items: list[Item] = [chart for chart in charts if chart is not None]
    for part, rows in summary.groupby("part", sort=False):
        rows = rows[rows["kind"] == "any"] if (rows["kind"] == "any").any() else rows
        table = summary_table(_telling(rows), f"{key}-{part}")
        title = _TITLES.get(str(part), str(part))
        caption = " ".join(filter(None, [_CAPTIONS.get(str(part), ""), table.caption]))
        items.append(Table(table.key, title, caption, table.columns, table.rows))
    if checks is not None:
        items.append(_checks_table(checks, key))
    lead = "The theory as numbers: where each loss has its minimum, and the regret there."
    return Section(key, "Calibration", lead, items)


def _telling(rows: pd.DataFrame) -> pd.DataFrame:
    """Without columns that are empty or the same everywhere, and with rounding as zero."""
    shown = {"mean", "low", "high", "verdict"}
    keep = [c for c in rows if c in shown or rows[c].nunique(dropna=False) > 1]
    rows = rows[[column for column in keep if rows[column].notna().any()]]
    numbers = [c for c in ("mean", "low", "high", "max", "floor") if c in rows]
    rounded = {c: rows[c].mask(rows[c].abs() < _ROUNDING, 0.0) for c in numbers}
    return rows.assign(**rounded)


def _samples_chart(summary: pd.DataFrame, key: str) -> Chart | None:
    """Regret of the exact minimiser over k, one curve per correction."""
    rows = summary[(summary["part"] == "samples") & (summary["metric"] == "excess")]
    if rows.empty or not {"k", "correction"} <= set(rows):
        return None
    series = [
        _curve(_NAMES.get(str(correction), str(correction)), own, "k", least=_ROUNDING)
        for correction, own in rows.groupby("correction", sort=False)
    ]
    view = View("", [Panel("", series)], "samples k", "IterVAML regret", x_log=True, y_log=True)
    caption = (
        "Regret of the model that minimises each loss exactly, by the number of model samples. "
        f"Values below {_ROUNDING:g} are rounding and drawn there."
    )
    return Chart(f"{key}-samples", "Regret against samples", caption, [view])


def _horizon_chart(summary: pd.DataFrame, key: str) -> Chart | None:
    """Regret of MuZero's value with the true kernel, over m, one curve per b."""
    rows = summary[(summary["part"] == "horizon") & (summary["metric"] == "excess")]
    if rows.empty or not {"m", "b", "k", "correction", "update", "target"} <= set(rows):
        return None
    rows = rows[(rows["update"] == "value") & (rows["correction"] == "none") & (rows["k"] == 1)]
    views = []
    for target, own in rows.groupby("target", sort=False):
        series = [_curve(f"b = {b:g}", each, "m") for b, each in own.groupby("b")]
        views.append(View(f"regret by {target}", [Panel("", series)], "model steps m", "regret"))
    if not views:
        return None
    caption = "Regret of the value that MuZero's loss prefers when the model is the true kernel."
    return Chart(f"{key}-horizon", "MuZero's value over the horizon", caption, views)


def _curve(name: str, rows: pd.DataFrame, axis: str, least: float | None = None) -> Series:
    rows = rows.sort_values(axis)
    x = rows[axis].astype(float).tolist()
    y, low, high = (
        rows[column].astype(float).clip(lower=least).tolist() for column in ("mean", "low", "high")
    )
    note = f"{rows['problems'].min():g} problems" if "problems" in rows else ""
    return Series(name, x, y, low, high, note)


def _checks_table(checks: pd.DataFrame, key: str) -> Table:
    table = summary_table(checks.rename(columns={"holds": "verdict"}), f"{key}-checks")
    place = list(table.columns).index("verdict") if "verdict" in table.columns else None
    said = {"yes": "holds", "no": "does not hold"}
    rows = [
        [said.get(str(cell), cell) if i == place else cell for i, cell in enumerate(row)]
        for row in table.rows
    ]
    caption = "Every proposition and lemma as a number against its bound."
    return Table(table.key, "Propositions and lemmas", caption, table.columns, rows)
