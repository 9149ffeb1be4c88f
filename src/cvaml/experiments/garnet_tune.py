"""`cvaml garnet-tune`: the same sweep of step sizes for every variant of the Garnet study."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from cvaml.experiments.garnet import Config as Study
from cvaml.experiments.garnet import complete, find_device, open_folder, study_arms, study_cells
from cvaml.tabular.study import Mode
from cvaml.types import UserError

if TYPE_CHECKING:
    import pandas as pd

FLOOR = 1e-10
"""Normalised errors below this are rounding of float32 and count as equal."""


@dataclass(frozen=True)
class Config:
    """Step sizes of model and value, each pair tried on the same problems for every variant."""

    out: str = "runs/garnet-tune"
    """Run folder; running again completes what is missing."""
    model_steps: tuple[float, ...] = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)
    """Steps of Adam for the model."""
    value_steps: tuple[float, ...] = (0.1, 0.3)
    """Steps of the value updates."""
    problems: int = 6
    """Problems; drawn with another seed than the study's."""
    ranks: tuple[int, ...] = (2, 10)
    """Ranks of the model."""
    temperatures: tuple[float, ...] = (0.001, 0.1, 1.0)
    """Temperatures of the environment."""
    variants: tuple[str, ...] = Study.variants
    """What is tuned."""
    k: tuple[int, ...] = Study.k
    """Model samples, as in the study."""
    mode: Mode = "exact"
    """Exact expectations or draws."""
    steps: int = Study.steps
    """Most steps of one fit."""
    tolerance: float = Study.tolerance
    """Convergence criterion, as in the study."""
    discount: float = Study.discount
    """The discount γ."""
    spread: float = Study.spread
    """Standard deviation of the model's initial entries."""
    seed: int = 1000
    """Seed of problems and starting points."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """Where to compute."""
    workers: int | None = None
    """Cells computed at once."""


def main(config: Config) -> int:
    """Completes the sweep and prints the table of every pair of steps, the best one marked."""
    for name in ("model_steps", "value_steps"):
        steps = getattr(config, name)
        if not steps or any(not 0 < step < float("inf") for step in steps):
            raise UserError(f"{name} must be one or more positive numbers, got {steps}")
    study = Study(
        **{
            name: getattr(config, name)
            for name in Config.__dataclass_fields__
            if name in Study.__dataclass_fields__
        }
    )
    arms = tuple(
        replace(arm, model_step=model_step, value_step=value_step)
        for arm in study_arms(study)
        for model_step in config.model_steps
        for value_step in config.value_steps
    )
    device = find_device(config.device)
    cells = study_cells(study, arms, device.platform)
    folder = open_folder(config, "garnet-tune", arms, device)
    complete(folder, cells, device, config.workers, "garnet-tune")

    import numpy as np
    import pandas as pd

    rows = pd.concat([pd.read_parquet(folder.file(f"cells/{cell.name}.parquet")) for cell in cells])
    rows["log10_nmse"] = np.log10(np.clip(rows["nmse"].fillna(np.inf), FLOOR, 1e10))
    keys = ["variant", "k", "model_step", "value_step"]
    table = rows.groupby(keys, sort=False)["log10_nmse"].mean().reset_index()
    best = table.groupby(["variant", "k"], sort=False)["log10_nmse"].transform("min")
    table["best"] = table["log10_nmse"] == best
    folder.write_table("results.parquet", rows)
    folder.write_table("steps.csv", table)
    print(_markdown(table, config))
    print(f"\nMean log10 of the normalised error over {len(cells)} cells; files in {folder.path}")
    return 0


def _markdown(table: "pd.DataFrame", config: Config) -> str:
    """One line a variant, one column a pair of steps, the best in bold."""
    pairs = [(m, v) for m in config.model_steps for v in config.value_steps]
    lines = [
        "| variant | k | " + " | ".join(f"{m:g} / {v:g}" for m, v in pairs) + " |",
        "|---|---|" + "---|" * len(pairs),
    ]
    for (variant, k), rows in table.groupby(["variant", "k"], sort=False):
        texts = []
        for model_step, value_step in pairs:
            same = (rows["model_step"] == model_step) & (rows["value_step"] == value_step)
            row = rows[same].iloc[0]
            text = f"{row['log10_nmse']:.2f}"
            texts.append(f"**{text}**" if row["best"] else text)
        lines.append(f"| {variant} | {k} | " + " | ".join(texts) + " |")
    return "\n".join(lines)
