"""The cliffwalk study: its summary with intervals, its grid of curves, its short table."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from cvaml.reports.looks import DASHES, PALETTE, assign_looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CELL = ["variant", "k", "rank", "temperature", "iteration"]
_METRICS = ("return", "optimal_return", "regret", "optimal", "value_error", "entropy")
_SAME = 1e-6
"""A policy counts as optimal if its return is this close, relatively, to the optimal one."""
_RESAMPLES = 2000
_TICKS = (-2, -3, -5, -7, -10, -15, -20, -30, -50, -70, -100, -150, -300, -1000, -3000, -10000)


def summarise(results: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """Mean with a 95 % bootstrap interval and median over the seeds, of every iteration.

    Metrics: `return` and `optimal_return` at the start, `regret` their difference, `optimal`
    the share of seeds whose policy is optimal, `value_error` and `entropy` as in the results.
    All losses share the seeds, so all intervals share the resamples.

    Args:
        results: one row per loss, cell, seed and iteration.
        seed: seed of the bootstrap.

    Returns:
        One row per loss, cell, iteration and metric: `study, variant, k, rank, temperature,
        iteration, metric, mean, median, low, high, problems`.
    """
    table = _with_regret(results)
    weights = _resamples(table["seed"].nunique(), seed)
    parts = []
    for key, rows in table.groupby(_CELL, sort=False):
        samples = rows.sort_values("seed")[list(_METRICS)].to_numpy(np.float64)
        low, high = np.quantile(weights @ samples, [0.025, 0.975], axis=0)
        part = {
            "study": "cliffwalk",
            **dict(zip(_CELL, key, strict=True)),
            "metric": _METRICS,
            "mean": samples.mean(axis=0),
            "median": np.median(samples, axis=0),
            "low": low,
            "high": high,
            "problems": len(samples),
        }
        parts.append(pd.DataFrame(part))
    summary = pd.concat(parts, ignore_index=True)
    return summary[summary["mean"].notna()].reset_index(drop=True)


def rank_losses(results: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """The losses in the order of their regret after the last iteration, averaged over the cells.

    Args:
        results: one row per loss, cell, seed and iteration.
        seed: seed of the bootstrap, which draws seeds and keeps the cells of a seed together.

    Returns:
        One row per loss, best first: `label, regret, low, high` and `optimal`, the share of
        seeds and cells whose policy is optimal.
    """
    last = _with_regret(results[results["iteration"] == results["iteration"].max()])
    last = last.assign(label=labels(last))
    weights = _resamples(last["seed"].nunique(), seed)
    rows = []
    for label, own in last.groupby("label", sort=False):
        by_seed = own.groupby("seed")["regret"].mean().to_numpy()
        low, high = np.quantile(weights @ by_seed, [0.025, 0.975])
        rows.append((label, by_seed.mean(), low, high, own["optimal"].mean()))
    order = pd.DataFrame(rows, columns=["label", "regret", "low", "high", "optimal"])
    return order.sort_values("regret", kind="stable", ignore_index=True)


def _with_regret(results: pd.DataFrame) -> pd.DataFrame:
    best, own = results["optimal_return"], results["return"]
    return results.assign(regret=best - own, optimal=best - own < _SAME * (1 + best.abs()))


def _resamples(seeds: int, seed: int) -> np.ndarray:
    """Weight of each seed in each bootstrap resample, [resamples, seeds]."""
    generator = np.random.default_rng(seed)
    counts = generator.multinomial(seeds, np.full(seeds, 1 / seeds), size=_RESAMPLES)
    return np.asarray(counts / seeds)


def draw_grid(summary: pd.DataFrame) -> "Figure":
    """Return of each iterate, a row of panels per rank, a column per temp; the optimum dashed.

    The axis is logarithmic in the negative return: a single seed that walks off the cliff for
    ever would flatten every other curve.
    """
    from matplotlib.figure import Figure

    table = summary.assign(label=labels(summary))
    ranks, temps = sorted(table["rank"].unique()), sorted(table["temperature"].unique())
    looks = assign_looks(table["label"])
    size = (max(6.5, 1.2 + 3.0 * len(temps)), 1.4 + 2.1 * len(ranks))
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(ranks), len(temps), sharex=True, sharey="col", squeeze=False)
    for row, rank in enumerate(ranks):
        for column, temp in enumerate(temps):
            axes = grid[row, column]
            own = table[(table["rank"] == rank) & (table["temperature"] == temp)]
            _draw_panel(axes, own, looks)
            if row == 0:
                axes.set_title(f"temp {temp:g}", fontsize=10)
            if column == 0:
                axes.set_ylabel(f"rank {rank}\nreturn at the start", fontsize=9)
            if row == len(ranks) - 1:
                axes.set_xlabel("policy iteration", fontsize=9)
    for column, temp in enumerate(temps):
        own = table[(table["temperature"] == temp) & table["metric"].str.endswith("return")]
        low, high = 1.15 * own["mean"].min(), 0.85 * own["mean"].max()
        grid[0, column].set_yticks([tick for tick in _TICKS if low <= tick <= high])
        grid[0, column].set_ylim(low, high)
    handles = grid[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=4, fontsize=9, frameon=False)
    seeds = int(summary["problems"].min())
    figure.suptitle(f"Cliffwalk: mean and 95 % interval over {seeds} seeds", fontsize=11)
    return figure


def _draw_panel(axes: "Axes", own: pd.DataFrame, looks: dict[str, tuple[int, int]]) -> None:
    returns = own[own["metric"] == "return"]
    best = own.loc[own["metric"] == "optimal_return", "mean"].iloc[0]
    for label, curve in returns.groupby("label", sort=False):
        slot, dash = looks[str(label)]
        (line,) = axes.plot(curve["iteration"], curve["mean"], lw=1.6, label=str(label))
        line.set(color=PALETTE[slot], linestyle=DASHES[dash])
        band = curve["iteration"], curve["low"], curve["high"]
        axes.fill_between(*band, color=PALETTE[slot], alpha=0.18, lw=0)
    axes.axhline(best, color="black", ls="--", lw=1, label="optimal")
    axes.set_yscale("function", functions=(_to_axis, _from_axis))
    axes.grid(alpha=0.25)
    axes.tick_params(labelsize=8)


def _to_axis(returns: np.ndarray) -> np.ndarray:
    return np.asarray(-np.log1p(-np.minimum(returns, 0)))


def _from_axis(heights: np.ndarray) -> np.ndarray:
    return np.asarray(1 - np.exp(-heights))


def labels(table: pd.DataFrame) -> pd.Series:
    """The variant, with k where one variant has several."""
    several = table.groupby("variant")["k"].transform("nunique") > 1
    named = table["variant"] + " k=" + table["k"].astype(str)
    return table["variant"].where(~several, named)


def short_table(folder: Path) -> str:
    """The last iteration's mean return of every loss in every cell, and their order, as text.

    Behind ± stands the larger half of the 95 % interval; a star marks that every seed's policy
    is optimal.
    """
    summary = pd.read_csv(folder / "summary.csv")
    last = summary[summary["iteration"] == summary["iteration"].max()]
    last = last.assign(label=labels(last))
    names = list(dict.fromkeys(last["label"]))
    width = max(15, *(len(name) + 2 for name in names))
    lines = [f"{'rank':>4} {'temp':>5} {'optimal':>8}" + "".join(f"{n:>{width}}" for n in names)]
    for (rank, temp), cell in last.groupby(["rank", "temperature"]):
        of = {metric: own.set_index("label") for metric, own in cell.groupby("metric")}
        line = f"{rank:>4} {temp:>5g} {of['optimal_return']['mean'].iloc[0]:>8.2f}"
        for name in names:
            mean, low, high = of["return"].loc[name, ["mean", "low", "high"]]
            star = "*" if of["optimal"].loc[name, "mean"] == 1 else " "
            line += f"{f'{mean:.2f} ±{max(mean - low, high - mean):.2f}{star}':>{width}}"
        lines.append(line)
    seeds = int(last["problems"].min())
    lines.append(f"return after the last iteration, ± 95 % over {seeds} seeds; * all optimal")
    lines.append("\nregret averaged over these cells, with its 95 % interval, best first:")
    for row in rank_losses(pd.read_parquet(folder / "results.parquet")).itertuples():
        interval = f"{row.regret:9.3f} [{row.low:.3f}, {row.high:.3f}]"
        lines.append(f"  {row.label:16}{interval:<30} optimal in {row.optimal:.0%}")
    return "\n".join(lines)
