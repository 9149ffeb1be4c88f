"""`cvaml train`: trains a population, or goes on with one."""

import dataclasses
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro

from cvaml.types import UserError


@dataclasses.dataclass(frozen=True)
class Config:
    """Train a population of agents. The same command on the same folder resumes."""

    task: tuple[str, ...] = ()
    """dm_control tasks with equal spaces, for instance humanoid-walk; --members of each."""
    env: str | None = None
    """A Gymnasium environment with continuous actions instead, for instance Pendulum-v1."""
    out: Path = Path("runs/train")
    """The run folder."""
    variant: str = "cvaml-1-0"
    """How model and value are trained: {vaml,cvaml,printed}-{m}-{b}, +noaux, aux-only, td3."""
    k: int | None = None
    """Model samples of each start state; 1 for vaml and 4 for cvaml and printed if not given."""
    model: Literal["stochastic", "deterministic"] = "stochastic"
    """A Gaussian latent model, or a deterministic one."""
    preset: Literal["paper", "small"] = "paper"
    """Sizes and intervals: the paper's, or those of a laptop."""
    members: int = 1
    """Members of each task; they differ by their seeds."""
    agent_steps: int | None = None
    """Agent steps of each member (500000 in the preset paper, 10000 in small)."""
    seed: int = 0
    """Seed of the first member; member i has this plus i."""
    set: Annotated[tuple[tuple[str, ...], ...], tyro.conf.UseAppendAction] = ()
    """key=value for any setting of the agent, for instance planner.horizon=2."""
    action_noise: float = 0.0
    """Standard deviation of Gaussian noise the environment adds to every action."""
    eval_every: int | None = None
    """Agent steps between evaluations; 0 evaluates at the end only."""
    eval_episodes: int | None = None
    """Episodes of each member in an evaluation."""
    checkpoint_every: int | None = None
    """Agent steps between checkpoints."""
    log_every: int | None = None
    """Agent steps that one row of the metrics averages over."""
    replay_steps: int | None = None
    """Steps a member's replay keeps; all if not given."""
    writers: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """Where the metrics go in addition to the run folder's own tables."""
    threads: int | None = None
    """Threads or worker processes of the environments; one per core if not given."""
    fresh: bool = False
    """Start from the beginning; refused if the folder holds a run, unless --overwrite."""
    overwrite: bool = False
    """With --fresh: delete the run that is in the folder."""
    compilation_cache: bool = True
    """Keep compiled programs in the user's cache folder ($XDG_CACHE_HOME or ~/.cache)."""


def main(config: Config) -> int:
    """Runs the command."""
    if config.task and config.env is not None:
        raise UserError("give --task or --env, not both")
    if not config.task and config.env is None:
        raise UserError("give --task, for instance --task pendulum-swingup, or --env")
    settings = parse_settings(config.set)

    from cvaml.agent.config import preset
    from cvaml.agent.config_text import override
    from cvaml.agent.sums import NotFiniteError
    from cvaml.agent.train import train, use_compilation_cache, use_cpu_devices
    from cvaml.agent.train_config import few_random_steps, train_preset
    from cvaml.runs.checkpoints import CheckpointError
    from cvaml.runs.signals import Interrupted

    agent = preset(config.preset, variant=config.variant, model=config.model, k=config.k)
    run = train_preset(config.preset, config.out, override(agent, settings))
    given = {
        name: getattr(config, name)
        for name in (
            *("agent_steps", "eval_every", "eval_episodes", "checkpoint_every"),
            *("log_every", "replay_steps", "threads"),
        )
        if getattr(config, name) is not None
    }
    run = dataclasses.replace(
        run,
        task=config.task or (config.env or "",),
        members=config.members,
        seed=config.seed,
        action_noise=config.action_noise,
        writers=config.writers,
        **given,
    )
    if config.preset == "small" and "random_steps" not in settings:
        run = few_random_steps(run)
    if config.compilation_cache:
        use_compilation_cache(cache_folder())
    use_cpu_devices(len(run.tasks))
    try:
        trained = train(run, fresh=config.fresh, overwrite=config.overwrite)
    except Interrupted as stop:
        print(f"cvaml: {stop}; the same command goes on", file=sys.stderr)
        return stop.exit_code
    except (NotFiniteError, CheckpointError, OSError) as error:
        print(f"cvaml: error: {error}", file=sys.stderr)
        return 1
    from cvaml.reports.training import training_figure

    figures, text = training_figure(config.out, np.random.default_rng(0))
    print(f"{config.out}: finished at agent step {trained.agent_step}")
    print(f"{text}\n\nFigure: {figures[0]}; curves: cvaml runs export, cvaml report {config.out}")
    return 0


def cache_folder() -> Path:
    """Where compiled programs are kept: not in a run folder, which has to stay small."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "cvaml" / "compiled"


def parse_settings(groups: tuple[tuple[str, ...], ...]) -> dict[str, str]:
    """The `--set` options as a table."""
    settings = {}
    for assignment in (item for group in groups for item in group):
        key, equals, text = assignment.partition("=")
        if not equals:
            raise UserError(f"--set expects key=value, got {assignment!r}")
        settings[key] = text
    return settings
