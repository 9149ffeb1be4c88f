"""Reading run folders: JSON, Parquet and CSV only, so nothing in a folder is ever executed."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cvaml.runs.metrics import COLUMNS, read_metrics
from cvaml.types import UserError

_TABULAR = ("garnet", "cliffwalk", "calibration")
_NUMBERS = ("k", "rank", "temperature", "iteration", "mean", "median", "low", "high", "problems")
_DEPTH = 3  # study / cell / part


@dataclass(frozen=True)
class Run:
    """What one run folder holds."""

    path: Path
    """The folder."""
    study: str
    """The study its configuration names."""
    config: dict[str, Any]
    """The stored configuration, with settings, package versions and commit."""
    summary: pd.DataFrame | None = None
    """Table of means with intervals, for the tabular studies."""
    metrics: pd.DataFrame | None = None
    """Metrics in long form, for agents."""
    checks: pd.DataFrame | None = None
    """Statements with the number that decides them, where the study has such."""


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """Reads every run folder at or below the given paths.

    Args:
        paths: run folders, folders of run folders (up to three levels above them), or single
            Parquet files in the long form of the run store.

    Returns:
        The runs in the order given, then by path.

    Raises:
        UserError: a path does not exist, holds no run, or holds one that cannot be read.
    """
    runs: list[Run] = []
    seen: set[Path] = set()
    for path in paths:
        for folder in _find(path):
            if folder.resolve() not in seen:
                seen.add(folder.resolve())
                runs.append(_read_file(folder) if folder.is_file() else _read_folder(folder))
    return runs


def _find(path: Path) -> list[Path]:
    """The run folders and loose metrics files at or below a path."""
    if not path.exists():
        raise UserError(f"{path} does not exist; give run folders, for instance runs/garnet")
    if path.is_file():
        if path.suffix != ".parquet":
            raise UserError(f"{path} is neither a run folder nor a .parquet file of metrics")
        return [path]
    level, found = [path], []
    try:
        for _ in range(_DEPTH + 1):
            found += [folder for folder in level if _is_run(folder)]
            rest = [folder for folder in level if not _is_run(folder)]
            found += sorted(file for folder in rest for file in folder.glob("*.parquet"))
            level = sorted(sub for folder in rest for sub in folder.iterdir() if sub.is_dir())
    except OSError as error:
        raise UserError(f"cannot read the folder {error.filename}: {error.strerror}") from None
    if not found:
        raise UserError(f"{path} holds no run: there is no config.json in it or below it")
    return found


def _is_run(folder: Path) -> bool:
    """Whether a folder is a run itself, not a study whose cells are runs."""
    if not (folder / "config.json").is_file():
        return False
    return not any((sub / "config.json").is_file() for sub in folder.iterdir() if sub.is_dir())


def _read_folder(folder: Path) -> Run:
    config = _read_config(folder / "config.json")
    study = str(config.get("study") or folder.name)
    if (folder / "summary.csv").exists():
        summary = _read_summary(folder / "summary.csv")
        checks = folder / "checks.csv"
        found = _read_summary(checks) if checks.is_file() else None
        return Run(folder, study, config, summary=summary, checks=found)
    if study in _TABULAR:
        raise UserError(f"{folder} has no results yet: summary.csv is missing")
    # One file where a run was packed for keeping, parts where it is still the run store's.
    packed = folder / "metrics.parquet"
    table = _read_table(packed) if packed.exists() else read_metrics(folder)
    return Run(folder, study, config, metrics=_checked(table, folder))


def _read_file(path: Path) -> Run:
    """A loose file of metrics; a JSON file of the same name beside it is its configuration."""
    beside = path.with_suffix(".json")
    config = _read_config(beside) if beside.is_file() else {}
    study = str(config.get("study") or "train")
    return Run(path, study, config, metrics=_checked(_read_table(path), path))


def _read_table(path: Path) -> pd.DataFrame:
    try:
        table = pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from None
    missing = [name for name in COLUMNS if name not in table]
    if missing:
        raise UserError(f"{path} is not a table of metrics: it has no {', '.join(missing)}")
    return table


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from None
    if not isinstance(config, dict):
        raise UserError(f"cannot read {path}: expected an object, got {type(config).__name__}")
    return config


def _read_summary(path: Path) -> pd.DataFrame:
    try:
        table = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from None
    numbers = [name for name in _NUMBERS if name in table]
    return _as_numbers(table, numbers, path)


def _checked(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """The metrics with numbers where numbers belong; names stay text, whatever they hold."""
    numbers = ["agent_step", "env_step", "grad_step", "wall_s", "value"]
    table = _as_numbers(table, numbers, path)
    table = table[np.isfinite(table["value"])]
    return table.astype(dict.fromkeys(("variant", "model", "task", "metric", "seed"), "str"))


def _as_numbers(table: pd.DataFrame, columns: Sequence[str], path: Path) -> pd.DataFrame:
    try:
        return table.assign(**{name: pd.to_numeric(table[name]) for name in columns})
    except (TypeError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from None
