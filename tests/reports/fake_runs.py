"""Run folders with invented numbers, for tests of how they are read and shown."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from cvaml.runs.metrics import COLUMNS

SEVEN = [f"dog-{w}" for w in ("run", "stand", "trot", "walk")] + [
    f"humanoid-{w}" for w in ("run", "stand", "walk")
]


def agent_run(
    folder: Path,
    variant: str = "cvaml-1-0",
    model: str = "stochastic",
    tasks=("dog-run", "dog-walk"),
    seeds: int = 3,
    steps=(0, 100_000, 200_000),
    level: float = 400.0,
    settings: dict | None = None,
) -> Path:
    """A folder in the long form of the run store; returns grow with the steps."""
    generator = np.random.default_rng(abs(hash((variant, model, level))) % 2**32)
    rows = []
    for task in tasks:
        for seed in range(seeds):
            top = level * generator.uniform(0.6, 1.4)
            for step in steps:
                share = step / max(steps)
                noise = generator.normal() * 12
                base = (variant, model, task, seed, step // 2, step, step // 2, step / 100)
                value = max(0.0, top * share**0.7 + noise)
                rows.append((*base, "eval_return", min(value, 1000.0)))
                rows.append((*base, "model_entropy", 3 - 2 * share + noise / 100))
                rows.append((*base, "vaml_error", 0.1 + share + abs(noise) / 100))
    folder.mkdir(parents=True)
    pd.DataFrame(rows, columns=list(COLUMNS)).to_parquet(folder / "metrics.parquet")
    config = {"study": "train", "settings": {"variant": variant, **(settings or {})}}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def tabular_run(
    folder: Path,
    study: str = "garnet",
    variants=("cvaml-1-0", "vaml-1-0", "mle"),
    ranks=(2, 5, 20),
    temperatures=(0.1, 1.0),
    iterations=(100,),
) -> Path:
    """A folder with a summary of means and intervals."""
    rows = []
    for v, variant in enumerate(variants):
        for rank in ranks:
            for t in temperatures:
                for iteration in iterations:
                    mean = 10.0 ** (-4 + 2 * v) / rank * (1 + t) / iteration
                    row = (study, variant, 1, rank, t, iteration, "value_error")
                    rows.append((*row, mean, mean * 0.9, mean * 0.8, mean * 1.3, 32))
    columns = "study variant k rank temperature iteration metric mean median low high problems"
    folder.mkdir(parents=True)
    pd.DataFrame(rows, columns=columns.split()).to_csv(folder / "summary.csv", index=False)
    (folder / "config.json").write_text(json.dumps({"study": study, "settings": {"seed": 0}}))
    return folder
