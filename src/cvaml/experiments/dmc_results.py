"""What a finished deep study says in one table: last returns of every arm and task."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cvaml.runs.cells import Cell

if TYPE_CHECKING:
    import pandas as pd


def summarise(root: Path, cells: Sequence[Cell]) -> None:
    """Writes `summary.csv` and prints it.

    Args:
        root: the folder of the study.
        cells: its cells, all done.
    """
    from cvaml.runs.folder import RunFolder

    table = last_returns(root, cells)
    RunFolder(root).write_table("summary.csv", table)
    print(table.to_string(index=False, float_format=lambda value: f"{value:.1f}"))
    print(f"\n{root}: summary.csv; figures: cvaml report {root} --out report")


def last_returns(root: Path, cells: Sequence[Cell]) -> "pd.DataFrame":
    """Mean over members of the last evaluation, with 95 % intervals.

    Returns:
        Columns `model, variant, k, action_noise, task, env_step, members, mean, low, high`; one
        row per arm and task. Few members make the interval narrower than it should be.
    """
    import numpy as np
    import pandas as pd

    from cvaml.reports.aggregate import bootstrap_mean_interval
    from cvaml.runs.folder import RunFolder
    from cvaml.runs.metrics import read_metrics

    parts = []
    for cell in cells:
        metrics = read_metrics(root / cell.output)
        returns = metrics[metrics["metric"] == "eval_return"]
        last = returns.sort_values("agent_step").groupby(["task", "seed"], as_index=False).last()
        settings = RunFolder(root / cell.output).read_json("config.json")["settings"]
        own = {"k": settings["agent"]["k"], "action_noise": settings["action_noise"]}
        parts.append(last.assign(**own))
    keys = ["model", "variant", "k", "action_noise", "task", "env_step"]
    rows = []
    whole = pd.concat(parts, ignore_index=True)
    for key, of in whole.groupby(keys, sort=False):
        values = of["value"].to_numpy(np.float64)
        low, high = bootstrap_mean_interval(values, np.random.default_rng(0))
        numbers = {"members": len(values), "mean": values.mean(), "low": low, "high": high}
        rows.append(dict(zip(keys, key, strict=True)) | numbers)
    return pd.DataFrame(rows)
