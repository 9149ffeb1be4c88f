"""What a finished training run leaves to look at: its curve, and a line for each task."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from cvaml.reports.aggregate import bootstrap_mean_interval
from cvaml.reports.control import task_chart
from cvaml.reports.curves import Curve, read_curves
from cvaml.reports.printed import looks_of, save_chart
from cvaml.reports.published import published_returns
from cvaml.reports.reading import read_runs


def training_figure(folder: Path, generator: np.random.Generator) -> tuple[list[Path], str]:
    """Draws the evaluation returns of a run into its folder, published methods behind them.

    Args:
        folder: of a run that was evaluated at least once.
        generator: source of the bootstrap; the call advances it.

    Returns:
        The files `figure.png` and `figure.pdf`, and the last evaluation of each task as text.
    """
    curves = read_curves(read_runs([folder]), "eval_return")
    chart = replace(task_chart(curves, published_returns(), generator), key="figure")
    tasks = sorted({curve.task for curve in curves})
    lines = [_line(task, [c for c in curves if c.task == task], generator) for task in tasks]
    return save_chart(chart, looks_of([chart]), folder), "\n".join(lines)


def _line(task: str, curves: list[Curve], generator: np.random.Generator) -> str:
    last = np.array([curve.values[-1] for curve in curves])
    text = f"{task:24} return {last.mean():.1f}"
    if len(last) > 1:
        low, high = bootstrap_mean_interval(last, generator)
        text += f" [{low:.1f}, {high:.1f}] over {len(last)} members"
    return f"{text} at {int(curves[0].steps[-1])} environment steps"
