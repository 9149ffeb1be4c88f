"""The charts of a report as printed figures, PNG and PDF."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cvaml.reports.charts import Chart, Panel, Series, View
from cvaml.reports.looks import DASHES, PALETTE, PUBLISHED, assign_looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Looks = Mapping[str, tuple[int, int]]
_INK, _SOFT, _GRID = "#14140f", "#52514e", "#e6e5df"
_COLUMNS = 4
_GAP = 0.048  # of the axes' height, between two names beside a plot


def save_chart(chart: Chart, looks: Looks, folder: Path) -> list[Path]:
    """Draws the first view of a chart and saves it as `<key>.png` and `<key>.pdf`.

    Args:
        chart: the chart.
        looks: name -> (colour slot, dash).
        folder: an existing folder.

    Returns:
        The two paths.
    """
    from matplotlib import rc_context

    with rc_context({"font.size": 9, "axes.titlesize": 9, "pdf.fonttype": 42}):
        figure = _draw(chart, looks)
        # Laid out once: each save would solve the layout again.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        paths = [folder / f"{chart.key}.{ending}" for ending in ("png", "pdf")]
        figure.savefig(paths[0], dpi=160)
        # Without a date two reports of the same runs are the same file.
        figure.savefig(paths[1], metadata={"CreationDate": None})
    return paths


def _draw(chart: Chart, looks: Looks) -> "Figure":
    from matplotlib.figure import Figure

    view = chart.views[0]
    columns = min(_COLUMNS, len(view.panels))
    rows = -(-len(view.panels) // columns)
    bars = chart.kind == "bars"
    longest = max((len(panel.series) for panel in view.panels), default=1)
    height = 0.9 + 0.24 * longest if bars else 2.3 if len(view.panels) > 1 else 3.2
    width = 6.4 if columns == 1 else 2.7 * columns
    figure = Figure(figsize=(width, rows * height + 0.6), layout="constrained")
    axes = figure.subplots(
        rows, columns, squeeze=False, sharey="all" if view.shared_y and not bars else "none"
    ).ravel()
    for axis in axes[len(view.panels) :]:
        axis.set_visible(False)
    for i, (axis, panel) in enumerate(zip(axes, view.panels, strict=False)):
        _dress(axis, panel)
        if bars:
            _bars(axis, panel, looks, names=i % columns == 0)
        else:
            _lines(axis, panel, view, looks)
            axis.set_xlabel(view.x_label)
            axis.set_ylabel(view.y_label if i % columns == 0 else "")
    figure.suptitle(f"{chart.title}: {view.label}" if view.label else chart.title, fontsize=10)
    if bars:
        return figure
    for axis in axes[: 1 if view.shared_y else len(view.panels)]:
        if not view.y_log and axis.dataLim.y0 >= 0:
            axis.set_ylim(bottom=0)
    if len(view.panels) == 1 and len(_named(view)) <= 20:
        _end_labels(figure, axes[0], view.panels[0], looks)
    else:
        _legend(figure, view, looks)
    return figure


def _dress(axis: "Axes", panel: Panel) -> None:
    axis.set_title(panel.title, loc="left")
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(color=_GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.tick_params(colors=_SOFT, labelcolor=_INK, labelsize=8)


def _lines(axis: "Axes", panel: Panel, view: View, looks: Looks) -> None:
    order = {"published": 0, "run": 1, "main": 2}
    for series in sorted(panel.series, key=lambda one: order[one.role]):
        colour, dash = _style(series, looks)
        x, y = np.asarray(series.x, float), np.asarray(series.y, float)
        if series.role == "run":
            axis.plot(x, y, color=colour, linewidth=0.5, alpha=0.35)
            continue
        published = series.role == "published"
        marker = "o" if len(x) <= 12 and not published else None
        axis.plot(
            x, y, color=colour, linestyle=dash, linewidth=0.9 if published else 1.6,
            marker=marker, markersize=3,
        )  # fmt: skip
        if series.low is not None and series.high is not None and not published:
            low, high = np.asarray(series.low, float), np.asarray(series.high, float)
            axis.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    if view.y_log:
        axis.set_yscale("log")
    _x_ticks(axis, sorted({x for series in panel.series for x in series.x}), view.x_log)


def _x_ticks(axis: "Axes", places: list[float | int], log: bool) -> None:
    """Plain numbers: 200k for steps, the values themselves where a log axis has few."""
    from matplotlib.ticker import EngFormatter, NullLocator

    if log:
        axis.set_xscale("log")
        if len(places) <= 8:
            axis.set_xticks(places, [f"{place:g}" for place in places])
            axis.xaxis.set_minor_locator(NullLocator())
    elif places and places[-1] >= 1e4:
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))


def _end_labels(figure: "Figure", axis: "Axes", panel: Panel, looks: Looks) -> None:
    """Names beside the last point of each curve, pushed apart where they would meet."""
    named = [s for s in panel.series if s.role != "run" and len(s.y)]
    figure.draw_without_rendering()
    ends = axis.transData.transform([(series.x[-1], series.y[-1]) for series in named])
    heights = axis.transAxes.inverted().transform(ends)[:, 1]
    order = np.argsort(heights)
    places = np.sort(heights)
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + _GAP)
    for i, limit in zip(reversed(range(len(places))), 1.02 - _GAP * np.arange(99), strict=False):
        places[i] = min(places[i], limit)
    for place, at in zip(order, places, strict=True):
        series = named[int(place)]
        colour = _SOFT if series.role == "published" else _style(series, looks)[0]
        text = axis.text(1.02, at, f"{series.name}  ", color=colour, va="center", fontsize=7.5)
        text.set_transform(axis.transAxes)


def _bars(axis: "Axes", panel: Panel, looks: Looks, names: bool) -> None:
    for row, series in enumerate(panel.series):
        colour, _ = _style(series, looks)
        dash = looks.get(series.name, (0, 0))[1]
        axis.barh(row, series.y[0], height=0.6, color=colour, alpha=0.5 if dash else 1)
        if series.low is not None and series.high is not None:
            axis.plot([series.low[0], series.high[0]], [row, row], color=_INK, linewidth=1.2)
    axis.set_yticks(range(len(panel.series)), [s.name for s in panel.series] if names else [])
    axis.invert_yaxis()


def _named(view: View) -> dict[str, Series]:
    """The first series of every name."""
    found: dict[str, Series] = {}
    for panel in view.panels:
        for series in panel.series:
            if series.role != "run":
                found.setdefault(series.name, series)
    return found


def _legend(figure: "Figure", view: View, looks: Looks) -> None:
    from matplotlib.lines import Line2D

    found = _named(view)
    if not 1 < len(found) <= 40:
        return
    handles = []
    for series in found.values():
        colour, dash = _style(series, looks)
        handles.append(Line2D([], [], color=colour, linestyle=dash, linewidth=1.6))
    figure.legend(
        handles, list(found), loc="outside lower center", frameon=False, fontsize=8,
        ncols=min(len(found), 3 if len(view.panels) == 1 else 6),
    )  # fmt: skip


def _style(series: Series, looks: Looks) -> tuple[str, Any]:
    slot, dash = looks.get(series.name, (0, 0))
    if series.role == "published":
        return PUBLISHED, DASHES[dash % len(DASHES)]
    return PALETTE[slot], DASHES[dash % len(DASHES)]


def looks_of(charts: Sequence[Chart]) -> Looks:
    """A look for every name, the same in all of the charts: ours coloured, published ones grey."""
    ours: dict[str, None] = {}
    published: dict[str, None] = {}
    for chart in charts:
        for view in chart.views:
            for panel in view.panels:
                for series in panel.series:
                    (published if series.role == "published" else ours)[series.name] = None
    return assign_looks(list(ours)) | {name: (0, i) for i, name in enumerate(published)}
