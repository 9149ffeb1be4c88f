"""`cvaml evaluate`: episodes of a trained population without exploration, and a film of one."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import tyro

from cvaml.types import UserError

if TYPE_CHECKING:
    from cvaml.agent.evaluate import Evaluation

_TRY = "from cvaml.experiments.film import check; check()"


@dataclasses.dataclass(frozen=True)
class Config:
    """Evaluate the newest checkpoint of a run."""

    run: Annotated[Path, tyro.conf.Positional]
    """The run folder, of a finished or a running training."""
    episodes: int = 10
    """Episodes of each member."""
    seed: int = 1
    """Another seed gives other initial states; training's own evaluations use 0."""
    video: Path | None = None
    """Film one more episode into this file, for instance out.mp4."""
    member: int = 0
    """Which member is filmed."""
    format: Literal["table", "json"] = "table"
    """How to print the result."""
    threads: int | None = None
    """Threads or worker processes of the environments; one per core if not given."""


def main(config: Config) -> int:
    """Runs the command."""
    if config.episodes < 1:
        raise UserError(f"--episodes must be at least 1, got {config.episodes}")

    from cvaml.agent.evaluate import Evaluator
    from cvaml.agent.load import load
    from cvaml.agent.trainer import member_keys

    trained = load(config.run)
    trained.member(config.member)
    backend = _rendering() if config.video else ""
    run = dataclasses.replace(trained.config, threads=config.threads)
    evaluator = Evaluator(run, config.episodes, config.seed)
    try:
        found = evaluator.run(trained.state, member_keys(run.seeds).evaluate)
        tasks = tuple(str(task) for task in run.tasks)
    finally:
        evaluator.close()
    rows = _summary(tasks, run.seeds, found)
    if config.format == "json":
        print(json.dumps({"agent_step": trained.agent_step, "rows": rows}, indent=1))
    else:
        print(f"{config.run} at agent step {trained.agent_step}, {config.episodes} episodes each")
        head = f"{'task':24} {'seed':>6} {'episodes':>9} {'mean':>10} {'95 % interval':>22}"
        print(f"{head} {'optimism':>10}")
        for row in rows:
            interval = f"[{row['low']:.2f}, {row['high']:.2f}]"
            print(
                f"{row['task']:24} {row['seed']:>6} {row['episodes']:>9} "
                f"{row['mean']:>10.2f} {interval:>22} {row['optimism']:>10.2f}"
            )
        print("optimism: V minus the discounted return that followed, mean over the states")
    if config.video is not None:
        _film(config, backend)
    return 0


def _summary(
    tasks: tuple[str, ...], seeds: tuple[int, ...], found: "Evaluation"
) -> list[dict[str, str | int | float]]:
    """One row per member, over its episodes; one per task, over its members' means."""
    from cvaml.reports.aggregate import bootstrap_mean_interval

    generator = np.random.default_rng(0)

    def row(
        task: str, seed: str, samples: np.ndarray, optimism: np.ndarray
    ) -> dict[str, str | int | float]:
        low, high = bootstrap_mean_interval(samples, generator)
        return {
            "task": task,
            "seed": seed,
            "episodes": optimism.size,
            "mean": float(samples.mean()),
            "low": low,
            "high": high,
            "optimism": float(optimism.mean()),
        }

    rows = [
        row(task, str(seed), *each)
        for task, seed, *each in zip(tasks, seeds, found.returns, found.optimism, strict=True)
    ]
    for task in dict.fromkeys(tasks):
        here = [name == task for name in tasks]
        rows.append(row(task, "all", found.returns[here].mean(axis=1), found.optimism[here]))
    return rows


def _rendering() -> str:
    """The first rendering backend that draws a picture, tried where a crash harms nobody."""
    problems = []
    for backend in ("egl", "osmesa"):
        command = [sys.executable, "-c", _TRY]
        try:
            done = subprocess.run(
                command, env=os.environ | {"MUJOCO_GL": backend}, capture_output=True, timeout=120
            )
        except subprocess.TimeoutExpired:
            problems.append(f"{backend}: no answer within 120 s")
            continue
        if done.returncode == 0:
            return backend
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        problems.append(f"{backend}: {''.join(last) or f'exit code {done.returncode}'}")
    raise UserError(f"--video: no rendering backend works ({'; '.join(problems)})")


def _film(config: Config, backend: str) -> None:
    command = [sys.executable, "-m", "cvaml.experiments.film", str(config.run), str(config.member)]
    command += [str(config.seed), str(config.video)]
    environment = os.environ | {"MUJOCO_GL": backend}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=1800)
    except subprocess.TimeoutExpired:
        raise UserError("--video: rendering did not finish within 30 minutes") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise UserError(f"--video: rendering failed with {backend}: {''.join(lines[-1:])}")
    print(f"wrote {config.video} ({backend})")
