"""Metrics of agent runs as labelled curves on common steps, ready for the statistics."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvaml.reports.reading import Run
from cvaml.reports.statistics import Scores

# Settings that say which run it is, not how it learns: they never separate two curves.
_IDENTITY = {
    "agent_steps",
    "checkpoint_every",
    "device",
    "episodes",
    "eval_episodes",
    "eval_every",
    "log_every",
    "member_settings",
    "members",
    "out",
    "seed",
    "seeds",
    "task",
    "tasks",
    "threads",
}

_MOST_SETTINGS = 3
_ORDER = ("cvaml-1-0", "cvaml-1-1", "vaml-1-0", "vaml-1-1", "aux-only", "td3")


@dataclass(frozen=True)
class Curve:
    """One metric of one run."""

    label: str
    """Variant, model, and whatever else distinguishes its configuration."""
    task: str
    run: str
    """The run folder and the seed."""
    steps: NDArray[np.float64]
    """Environment steps, [n], rising."""
    values: NDArray[np.float64]
    """The metric there, [n]."""


def read_curves(runs: Sequence[Run], metric: str) -> list[Curve]:
    """All curves of a metric.

    Runs of the same variant and model whose other settings differ get the differing settings
    into their labels, so that no mean ever mixes two configurations.

    Args:
        runs: agent runs; others are skipped.
        metric: for instance `"eval_return"`.
    """
    agents = [run for run in runs if run.metrics is not None]
    suffixes = _suffixes(agents)
    curves = []
    for run in agents:
        assert run.metrics is not None
        table = run.metrics[run.metrics["metric"] == metric]
        for key, rows in table.groupby(["variant", "model", "task", "seed"], sort=False):
            variant, model, task, seed = map(str, key)
            rows = rows.drop_duplicates("env_step", keep="last").sort_values("env_step")
            suffix, _ = suffixes[str(run.path), variant, model, seed]
            curves.append(
                Curve(
                    label=_name(variant, model) + suffix,
                    task=task,
                    run=f"{run.path} seed {seed}",
                    steps=rows["env_step"].to_numpy(np.float64),
                    values=rows["value"].to_numpy(np.float64),
                )
            )
    return curves


def numbered_labels(runs: Sequence[Run]) -> dict[str, str]:
    """The labels that end in a number of settings, with those settings."""
    suffixes = _suffixes([run for run in runs if run.metrics is not None])
    return {
        _name(variant, model) + suffix: meaning
        for (_, variant, model, _), (suffix, meaning) in suffixes.items()
        if meaning
    }


def _name(variant: str, model: str) -> str:
    return f"{variant} deterministic" if model == "deterministic" else variant


def metric_names(runs: Iterable[Run]) -> list[str]:
    """The metrics that any agent run has, sorted."""
    found: set[str] = set()
    for run in runs:
        if run.metrics is not None:
            found |= set(run.metrics["metric"].unique())
    return sorted(found)


def on_common_steps(
    curves: Sequence[Curve], most: int = 60
) -> tuple[NDArray[np.float64], Scores] | None:
    """Curves of several runs and tasks on the same steps, by linear interpolation.

    The steps end where the shortest run ends: a mean over the runs that happen to be long would
    change its meaning along the curve.

    Args:
        curves: curves of one label.
        most: keep at most this many steps.

    Returns:
        Steps [n] and task -> values [n, runs]; None if the curves have no step in common.
    """
    curves = [curve for curve in curves if curve.steps.size]
    if not curves:
        return None
    first, last = max(c.steps[0] for c in curves), min(c.steps[-1] for c in curves)
    steps = np.unique(np.concatenate([curve.steps for curve in curves]))
    steps = steps[(steps >= first) & (steps <= last)]
    if steps.size == 0:
        return None
    if steps.size > most:
        steps = steps[np.unique(np.linspace(0, steps.size - 1, most).round().astype(int))]
    return steps, {task: np.stack(list(rows), axis=-1) for task, rows in _rows(curves, steps)}


def scores_at(curves: Sequence[Curve], step: float | int) -> Scores:
    """The values of curves of one label at one step, task -> [runs].

    Args:
        curves: curves that all reach the step.
        step: an environment step; between two evaluations the value is interpolated.
    """
    return {
        task: np.concatenate(list(rows)) for task, rows in _rows(curves, np.array([float(step)]))
    }


def _rows(
    curves: Sequence[Curve], steps: NDArray[np.float64]
) -> list[tuple[str, list[NDArray[np.float64]]]]:
    by_task: dict[str, list[NDArray[np.float64]]] = {}
    for curve in curves:
        row = np.interp(steps, curve.steps, curve.values)
        by_task.setdefault(curve.task, []).append(row)
    return sorted(by_task.items())


def _suffixes(runs: Sequence[Run]) -> dict[tuple[str, str, str, str], tuple[str, str]]:
    """Per run, variant, model and seed, the end of its label and what a numbered one means."""
    settings: dict[tuple[str, str, str, str], dict[str, str]] = {}
    for run in runs:
        assert run.metrics is not None
        members = run.metrics[["variant", "model", "seed"]].drop_duplicates()
        for variant, model, seed in members.itertuples(index=False):
            settings[str(run.path), variant, model, seed] = _member_settings(run, seed)
    seen: dict[tuple[str, str], dict[str, set[str]]] = {}
    for (_, variant, model, _), own in settings.items():
        values = seen.setdefault((variant, model), {})
        for key, value in own.items():
            values.setdefault(key, set()).add(value)
    suffixes: dict[tuple[str, str, str, str], tuple[str, str]] = {}
    numbers: dict[tuple[str, str], dict[str, int]] = {}
    for place, own in settings.items():
        several = sorted(key for key, found in seen[place[1:3]].items() if len(found) > 1)
        said = [f"{key.rsplit('.', 1)[-1]}={own.get(key, 'unset')}" for key in several]
        if len(said) > _MOST_SETTINGS:  # too long for a legend: numbered, spelled out in a table
            known = numbers.setdefault(place[1:3], {})
            number = known.setdefault(" ".join(said), len(known) + 1)
            suffixes[place] = (f" settings {number}", " ".join(said))
        else:
            suffixes[place] = ("".join(f" {one}" for one in said), "")
    return suffixes


def _member_settings(run: Run, seed: str) -> dict[str, str]:
    """What determines how one member of a run learns, as dotted keys."""
    stored = run.config.get("settings", {})
    if not isinstance(stored, Mapping):
        return {}
    found = {key: str(value) for key, value in _flatten(stored)}
    own, first = stored.get("member_settings"), stored.get("seed")
    if isinstance(own, Mapping) and isinstance(first, int) and seed.isdecimal():
        member = int(seed) - first  # member i of a population has the first seed plus i
        for key, values in own.items():
            if isinstance(values, list) and 0 <= member < len(values):
                found[f"member.{key}"] = str(values[member])
    return found


def _flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Nested settings as dotted keys, without those that only say which run it is."""
    for key, value in settings.items():
        if str(key) in _IDENTITY:
            continue
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def by_label(curves: Iterable[Curve]) -> dict[str, list[Curve]]:
    """Curves grouped by label: the study's cells first, then its ablations, then other names."""
    groups: dict[str, list[Curve]] = {}
    for curve in curves:
        groups.setdefault(curve.label, []).append(curve)
    return dict(sorted(groups.items(), key=lambda item: _rank(item[0])))


def is_ablation(label: str) -> bool:
    """Whether a label belongs to a variant from which a part was taken away."""
    return "+noaux" in label or label.split(" ")[0] in ("aux-only", "td3")


def _rank(label: str) -> tuple[bool, int, str]:
    base = label.split(" ")[0].split("+")[0]
    place = _ORDER.index(base) if base in _ORDER else len(_ORDER)
    return is_ablation(label), place, label


def task_sets(curves: Sequence[Curve]) -> dict[str, list[str]]:
    """The groups of tasks over which to aggregate: all, then one per domain.

    Args:
        curves: curves of any label; a task belongs to a group if some curve has it.

    Returns:
        Title -> tasks; a group of a single task is left out.
    """
    tasks = sorted({curve.task for curve in curves})
    domains: dict[str, list[str]] = {}
    for task in tasks:
        domains.setdefault(task.split("-")[0], []).append(task)
    sets = {f"{domain} ({len(own)} tasks)": own for domain, own in domains.items()}
    if len(domains) > 1:
        sets = {f"all {len(tasks)} tasks": tasks, **sets}
    return {title: own for title, own in sets.items() if len(own) > 1}


def complete(curves: Sequence[Curve], tasks: Sequence[str]) -> dict[str, list[Curve]]:
    """The labels that have every one of the tasks, with their curves on them."""
    groups = by_label(curve for curve in curves if curve.task in tasks)
    return {label: own for label, own in groups.items() if {c.task for c in own} == set(tasks)}


def at_least(groups: dict[str, list[Curve]], step: float | int) -> dict[str, list[Curve]]:
    """The labels all of whose runs have reached the step."""
    return {
        label: own
        for label, own in groups.items()
        if min(c.steps[-1] for c in own) >= step >= max(c.steps[0] for c in own)
    }


def note(curves: Sequence[Curve]) -> str:
    """How many runs a curve stands for."""
    counts = [len(own) for own in cells(curves).values()]
    return f"{min(counts)} run{'s' if min(counts) > 1 else ''} a task"


def cells(curves: Sequence[Curve]) -> dict[tuple[str, str], list[Curve]]:
    """Curves grouped by label and task."""
    found: dict[tuple[str, str], list[Curve]] = {}
    for curve in curves:
        found.setdefault((curve.label, curve.task), []).append(curve)
    return found
