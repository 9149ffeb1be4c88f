"""The figure of the Garnet study: error against rank, and against temperature."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cvaml.reports.garnet import FLOOR, label, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = {
    "mle": "#555555",
    "vaml-1-0": "#d95f02",
    "cvaml-1-0": "#1b7837",
    "printed-1-0": "#a6761d",
    "vaml-1-1": "#7570b3",
    "cvaml-1-1": "#2c7fb8",
}


def draw_figure(summary: pd.DataFrame) -> "Figure":
    """Both rows of the figure.

    Args:
        summary: rows of `summary.csv`.

    Returns:
        Mean normalised error with 95 % bands; against rank at up to three temperatures (top) and
        against temperature at up to three ranks (bottom). Dots are medians.
    """
    from matplotlib.figure import Figure

    nmse = summary[summary["metric"] == "nmse"]
    top, bottom = panels(nmse["temperature"]), panels(nmse["rank"])
    columns = max(len(top), len(bottom))
    figure = Figure(figsize=(4 * columns, 7.6), layout="constrained")
    axes = figure.subplots(2, columns, sharey=True, squeeze=False)
    for row, (chosen, fixed, moving) in enumerate(
        ((top, "temperature", "rank"), (bottom, "rank", "temperature"))
    ):
        for column, value in enumerate(chosen):
            axis = axes[row, column]
            _lines(axis, summary, nmse[nmse[fixed] == value], moving)
            name = f"temperature τ = {value:g}" if fixed == "temperature" else f"rank {value:g}"
            axis.set_title(name, fontsize=10)
            axis.set_xlabel("rank of the model" if moving == "rank" else "temperature τ")
        for spare in axes[row, len(chosen) :]:
            spare.set_axis_off()
        axes[row, 0].set_ylabel("value error / Var(V)")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=8, frameon=False)
    problems = int(nmse["problems"].max())
    figure.suptitle(
        f"Value error of a low-rank model on {problems} Garnet problems\n"
        f"mean, 95 % band, median (dots); values below {FLOOR:g} are drawn there",
        fontsize=10,
    )
    return figure


def _lines(axis: "Axes", summary: pd.DataFrame, rows: pd.DataFrame, moving: str) -> None:
    """Every arm in one panel."""
    for variant, k in dict.fromkeys(zip(rows["variant"], rows["k"], strict=True)):
        arm = rows[(rows["variant"] == variant) & (rows["k"] == k)].sort_values(moving)
        x = arm[moving].to_numpy(float)
        colour, style = _style(variant, k, summary)
        curves = np.maximum(arm[["mean", "median", "low", "high"]].to_numpy(float), FLOOR)
        mean, median, low, high = curves.T
        name = label(variant, k, summary)
        # The paper's own losses stand out; additions and other k are thinner.
        width = 1.6 if style == "solid" else 1.0
        axis.plot(x, mean, color=colour, linestyle=style, linewidth=width, label=name)
        axis.plot(x, median, ".", color=colour, markersize=3, alpha=0.6)
        axis.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    axis.set_xscale("log")
    axis.set_yscale("log")
    if moving == "rank":
        ranks = sorted(rows["rank"].unique())
        axis.set_xticks(ranks, [f"{rank:g}" for rank in ranks])
        axis.minorticks_off()
    axis.axhline(1, color="#bbbbbb", linewidth=0.7, zorder=0)
    axis.grid(alpha=0.2)


def _style(variant: str, k: int, summary: pd.DataFrame) -> tuple[str, Any]:
    """Colour by family, line style by addition and by k."""
    colour = _COLOURS.get(variant.split("+")[0], "#000000")
    least = k == summary[summary["variant"] == variant]["k"].min()
    if "+kl" in variant:
        return colour, (0, (1, 1)) if least else (0, (1, 4))
    if "+td" in variant:
        return colour, "dashdot" if least else (0, (6, 2, 1, 2, 1, 2))
    return colour, "solid" if least else "dashed"
