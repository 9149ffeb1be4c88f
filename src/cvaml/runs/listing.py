"""What runs a folder holds, from file names and two small JSON files each: fast for thousands."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cvaml.runs.lock import is_locked


@dataclass(frozen=True)
class RunSummary:
    """One line of `cvaml runs list`."""

    path: str
    """The run folder, relative to the folder that was searched."""
    study: str
    """What kind of run it is."""
    state: str
    """`done`, `running`, `stopped` (resumable) or `broken` (its configuration cannot be read)."""
    step: int | None
    """Agent step of the newest checkpoint or of the end; None where the study counts none."""
    settings: dict[str, Any]
    """The configuration."""


def find_runs(root: Path | str) -> Iterator[RunSummary]:
    """All runs in or below a folder, by name; a run folder is not searched further."""
    yield from _walk(os.fspath(root), ".")


def _walk(folder: str, name: str) -> Iterator[RunSummary]:
    with os.scandir(folder) as entries:
        found = {entry.name: entry for entry in entries}
    if "config.json" in found:
        yield _summary(folder, name, set(found))
        return
    for child in sorted(found):
        if not child.startswith(".") and found[child].is_dir():
            yield from _walk(found[child].path, child if name == "." else f"{name}/{child}")


def _summary(folder: str, name: str, files: set[str]) -> RunSummary:
    config = _read(f"{folder}/config.json")
    if not config:
        return RunSummary(name, "", "broken", None, {})
    study, settings = str(config.get("study", "")), config.get("settings", {})
    if "done.json" in files:
        return RunSummary(
            name, study, "done", _read(f"{folder}/done.json").get("agent_step"), settings
        )
    steps = []
    if "checkpoints" in files:
        steps = [int(step) for step in os.listdir(f"{folder}/checkpoints") if step.isdigit()]  # noqa: PTH208
    running = ".lock" in files and is_locked(folder)
    state = "running" if running else "stopped"
    return RunSummary(name, study, state, max(steps, default=None), settings)


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path) as file:  # noqa: PTH123 - pathlib doubles the time of a long list
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
