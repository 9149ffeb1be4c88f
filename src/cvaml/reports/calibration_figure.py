"""The picture of the calibration study: verdicts, regret against k, against m and b, and f*."""

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

_BLUE, _ORANGE, _GREEN = "#14599a", "#c8640a", "#2c7a4b"
_COLUMNS = [
    ("itervaml", "model", "mean", "IterVAML\nmodel"),
    ("muzero", "model", "mean", "MuZero\nmodel"),
    ("muzero", "value", "mean", "MuZero\nvalue, mean"),
    ("muzero", "value", "state", "MuZero\nvalue, state"),
    ("td", "value", "state", "TD\nvalue, state"),
]
_ROWS = [
    ("deterministic", "deterministic", "deterministic", "det. model, det. env."),
    ("deterministic", "stochastic", "deterministic", "det. model, stoch. env."),
    ("stochastic", "deterministic", "all", "stoch. model, det. env., all"),
    ("stochastic", "deterministic", "floor", "stoch. model, det. env., noise floor"),
    ("stochastic", "stochastic", "all", "stoch. model, stoch. env., all"),
    ("stochastic", "stochastic", "floor", "stoch. model, stoch. env., noise floor"),
]
_LOSSES = [
    ("none", "VAML", _ORANGE, "o"),
    ("unbiased", "CVAML (s²/k)", _BLUE, "s"),
    ("printed", "as printed", _GREEN, "^"),
]
_ROUNDING = 1e-17  # regrets below are drawn here
_VISIBLE = 1e-12  # regrets below are rounding errors, whose interval says nothing


def calibration_figure(results: pd.DataFrame, summary: pd.DataFrame) -> Figure:
    """Four panels from the tables of a run.

    Args:
        results: the long form.
        summary: its summary.

    Returns:
        The figure, not yet saved.
    """
    figure, axes = plt.subplot_mosaic(
        [["verdicts", "verdicts"], ["samples", "horizon"], ["compact", "twice"]],
        figsize=(11, 12.5),
        height_ratios=[1.15, 1, 1],
        layout="constrained",
    )
    any_kind = summary[summary["kind"] == "any"]
    _verdicts(axes["verdicts"], any_kind[any_kind["part"] == "table"])
    _samples(axes["samples"], any_kind[any_kind["part"] == "samples"])
    _horizon(axes["horizon"], any_kind[any_kind["part"] == "horizon"])
    curves = results[results["part"] == "compact"]
    _curves(axes["compact"], curves, "", "One step: f* predicts the expected value exactly")
    _curves(axes["twice"], curves, "two_step_", "Two steps: f* applied twice does not")
    return figure


def _verdicts(ax: Axes, table: pd.DataFrame) -> None:
    """Table 1 as a grid: colour is the verdict, a frame marks where the paper says otherwise."""
    excess = table[table["metric"] == "excess"]
    settings = [("none", 1, "none"), ("unbiased", 4, "s²/k")]
    grid = np.zeros((len(_ROWS), len(_COLUMNS) * len(settings)))
    for i, (model, environment, model_class, _) in enumerate(_ROWS):
        for j, (loss, update, target, _) in enumerate(_COLUMNS):
            for h, (correction, k, _) in enumerate(settings):
                found = excess[
                    (excess["model"] == model)
                    & (excess["environment"] == environment)
                    & (excess["model_class"] == model_class)
                    & (excess["loss"] == loss)
                    & (excess["update"] == update)
                    & (excess["target"] == target)
                    & (excess["correction"] == correction)
                    & (excess["k"] == k)
                ].iloc[0]
                column = len(settings) * j + h
                grid[i, column] = found["verdict"] == "calibrated"
                ax.text(column, i, _cell_text(found), ha="center", va="center", fontsize=8)
                if found["verdict"] != found["paper"]:
                    corner = (column - 0.46, i - 0.45)
                    ax.add_patch(Rectangle(corner, 0.92, 0.9, fill=False, lw=1.8, ls="--"))
    colours = ListedColormap(["#f6c9a0", "#bcd6ee"])
    ax.imshow(grid, cmap=colours, vmin=0, vmax=1, aspect="auto")
    names = [f"{setting[2]}" for _ in _COLUMNS for setting in settings]
    ax.set_xticks(range(grid.shape[1]), names, fontsize=8)
    ax.set_xlabel("correction (none: k = 1; s²/k: k = 4)", fontsize=9)
    ax.set_yticks(range(len(_ROWS)), [row[3] for row in _ROWS], fontsize=9)
    for j, (*_, name) in enumerate(_COLUMNS):
        ax.text(2 * j + 0.5, -0.62, name, ha="center", va="bottom", fontsize=9)
        ax.axvline(2 * j - 0.5, color="white", lw=4)
    ax.set_title(
        "Table 1 recomputed: mean excess regret (blue: calibrated, orange: not; "
        "dashed: the paper says otherwise)",
        fontsize=10,
        pad=34,
    )
    ax.tick_params(length=0)


def _cell_text(row: pd.Series) -> str:
    if row["verdict"] == "calibrated":
        return "0"
    if row["unbounded"]:
        return f"∞ in {100 * row['unbounded'] / row['problems']:.0f} %"
    return f"{row['mean']:.2g}"


def _samples(ax: Axes, samples: pd.DataFrame) -> None:
    """Regret against k: formulas as lines over brute-force points with intervals."""
    for correction, label, colour, marker in _LOSSES:
        rows = samples[samples["correction"] == correction].sort_values("k")
        formula = rows[rows["metric"] == "closed_form"]
        if correction != "unbiased":
            shown = formula[formula["mean"] > _ROUNDING]
            ax.plot(shown["k"], shown["mean"], color=colour, label=f"{label}, formula")
        brute = rows[rows["metric"] == "brute_force"]
        mean, low, high = (
            brute[c].clip(lower=_ROUNDING).to_numpy() for c in ("mean", "low", "high")
        )
        errors = np.maximum([mean - low, high - mean], 0) * (mean > _VISIBLE)
        ax.errorbar(
            brute["k"], mean, errors, fmt=marker, color=colour, ms=4, label=f"{label}, brute force"
        )
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(sorted(samples["k"].unique()), sorted(samples["k"].astype(int).unique()))
    ax.set_xlabel("model samples k")
    ax.set_ylabel("IterVAML regret, mean and 95 % interval")
    ax.set_title("Regret of the exact minimiser", fontsize=10)
    ax.legend(fontsize=8)
    ax.grid(alpha=0.3)


def _horizon(ax: Axes, horizon: pd.DataFrame) -> None:
    """MuZero's value by state against m and b, with the true kernel as model."""
    chosen = horizon[
        (horizon["metric"] == "excess")
        & (horizon["target"] == "state")
        & (horizon["correction"] == "none")
        & (horizon["k"] == 1)
    ]
    shades = plt.get_cmap("viridis")(np.linspace(0, 0.8, chosen["b"].nunique()))
    for shift, ((b, rows), colour) in enumerate(zip(chosen.groupby("b"), shades, strict=True)):
        rows = rows.sort_values("m")
        errors = [rows["mean"] - rows["low"], rows["high"] - rows["mean"]]
        place = rows["m"] + 0.06 * shift
        ax.errorbar(place, rows["mean"], errors, color=colour, fmt="o-", ms=4, label=f"b = {b:.0f}")
    ax.set_xticks(sorted(chosen["m"].unique()))
    ax.set_xlabel("model steps m")
    ax.set_ylabel("regret by state, mean and 95 % interval")
    ax.set_title("MuZero's value with the true kernel as model, k = 1", fontsize=10)
    ax.set_ylim(bottom=0)
    ax.legend(fontsize=8, loc="lower right")
    ax.grid(alpha=0.3)


def _curves(ax: Axes, curves: pd.DataFrame, prefix: str, title: str) -> None:
    """Expected values as lines, the deterministic model's as points."""
    colours = plt.get_cmap("tab10").colors  # type: ignore[attr-defined]
    for (name, rows), colour in zip(curves.groupby("name", sort=False), colours, strict=False):
        for metric, style in (("expected", {"ls": "-"}), ("predicted", {"ls": "", "marker": "."})):
            line = rows[rows["metric"] == prefix + metric].sort_values("x")
            label = str(name).split(";")[0] if metric == "expected" else None
            ax.plot(line["x"], line["value"], color=colour, label=label, **style)  # type: ignore[arg-type]
    steps = "x''" if prefix else "x'"
    ax.set_xlabel("state x")
    ax.set_ylabel(f"line: E[V(φ({steps}))], points: f*")
    ax.set_title(title, fontsize=10)
    ax.legend(fontsize=8, title="kernel", title_fontsize=8)
    ax.grid(alpha=0.3)
