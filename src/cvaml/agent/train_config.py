"""What a training run is: tasks, members, steps and intervals around an agent's configuration."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from cvaml.agent.config import AgentConfig, preset
from cvaml.agent.config_text import describe, from_description
from cvaml.losses import Variant
from cvaml.runs.settings import check_keys, to_json
from cvaml.runs.writers import WriterName
from cvaml.types import UserError

Task = str | Callable[[], Any]

# What may change when a run goes on: none of it changes a single number of the curves.
_FREE = ("out", "checkpoint_every", "writers", "threads")


@dataclass(frozen=True)
class TrainConfig:
    """One run: a population of `members` per task, trained for `agent_steps` each."""

    out: Path
    """The run folder."""
    task: tuple[Task, ...] = ("pendulum-swingup",)
    """dm_control tasks, Gymnasium ids or environment factories with equal spaces."""
    members: int = 1
    """Members of each task; member i of the population has seed `seed` + i."""
    agent_steps: int = 500_000
    """Agent steps of each member."""
    seed: int = 0
    """Seed of the first member."""
    agent: AgentConfig = field(default_factory=AgentConfig)
    """Networks, losses, planner."""
    member_settings: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Loss coefficients and other `MemberSettings` that differ, one value per member."""
    action_noise: float = 0.0
    """Standard deviation of the Gaussian noise the environments add to every action."""
    eval_every: int = 12_500
    """Agent steps between evaluations; 0 evaluates at the end only."""
    eval_episodes: int = 10
    """Episodes of each member in an evaluation."""
    checkpoint_every: int = 10_000
    """Agent steps between checkpoints."""
    log_every: int = 500
    """Agent steps that one row of the metrics averages over."""
    replay_steps: int | None = None
    """Steps a member's replay keeps; None keeps all."""
    writers: tuple[WriterName, ...] = ()
    """Where the metrics go in addition: `tensorboard`, `wandb`."""
    threads: int | None = None
    """Threads or worker processes of the environments; None is one per core."""

    def __post_init__(self) -> None:
        for name in ("members", "agent_steps", "eval_episodes", "checkpoint_every", "log_every"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("seed", "eval_every", "action_noise"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} must be at least 0, got {getattr(self, name)}")
        if not self.task:
            raise UserError("task is empty; give at least one")
        if self.replay_steps is not None and self.replay_steps < self.agent.sequence_length:
            raise UserError(
                f"replay_steps must be at least {self.agent.sequence_length}, the length of a "
                f"sequence, got {self.replay_steps}"
            )

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The task of each member."""
        return tuple(task for task in self.task for _ in range(self.members))

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seed of each member."""
        return tuple(self.seed + i for i in range(len(self.tasks)))


def train_preset(name: str, out: Path | str, agent: AgentConfig | None = None) -> TrainConfig:
    """The intervals that go with a preset of the agent.

    Args:
        name: `"paper"` or `"small"`.
        out: the run folder.
        agent: the agent, if not the preset's own.

    Returns:
        The configuration, to be changed with `dataclasses.replace`.
    """
    agent, out = preset(name) if agent is None else agent, Path(out)
    if name == "paper":
        return TrainConfig(out=out, agent=agent)
    return TrainConfig(
        out=out,
        agent=agent,
        agent_steps=10_000,
        eval_every=2_000,
        eval_episodes=2,
        checkpoint_every=2_000,
        log_every=100,
    )


def stored_settings(config: TrainConfig) -> dict[str, Any]:
    """What `config.json` keeps: everything that determines the numbers of the run."""
    names = [f.name for f in fields(config) if f.name not in _FREE]
    settings = {name: getattr(config, name) for name in names}
    settings["task"] = [_task_name(task) for task in config.task]
    settings["agent"] = describe(config.agent)
    settings["variant"], settings["model"] = config.agent.variant.name, config.agent.model
    found: dict[str, Any] = to_json(settings)
    return found


def from_settings(
    settings: Mapping[str, Any], out: Path, variant: Variant | None = None
) -> TrainConfig:
    """The configuration that `stored_settings` wrote.

    A run folder holds data, never code: a task given as a factory comes back as its name, and a
    variant of one's own has to be given again.

    Args:
        settings: the stored object.
        out: the run folder.
        variant: the run's variant, if it is not one of the grammar.

    Raises:
        UserError: a key is unknown or missing, with the nearest valid name.
    """
    template = stored_settings(TrainConfig(out=out))
    check_keys(settings, list(template), f"{out / 'config.json'}")
    agent = settings["agent"]
    check_keys(agent, list(template["agent"]), f"{out / 'config.json'}, key 'agent'")
    for part, expected in template["agent"].items():
        if isinstance(expected, dict):
            check_keys(agent[part], list(expected), f"{out / 'config.json'}, key 'agent.{part}'")
    plain = {k: v for k, v in settings.items() if k not in ("variant", "model", "agent", "task")}
    if variant is not None:
        if variant.name != agent["variant"]:
            raise UserError(f"the run has the variant {agent['variant']!r}, not {variant.name!r}")
        found = from_description({**agent, "variant": "vaml-1-0", "k": 1})
        found = replace(found, variant=variant)
    else:
        found = from_description(agent)
    return TrainConfig(out=out, task=tuple(settings["task"]), agent=found, **plain)


def few_random_steps(config: TrainConfig) -> TrainConfig:
    """The same run with at most a tenth of its steps random, as the small preset asks."""
    steps = min(config.agent.random_steps, config.agent_steps // 10)
    return replace(config, agent=replace(config.agent, random_steps=steps))


def _task_name(task: Task) -> str:
    return task if isinstance(task, str) else getattr(task, "__name__", type(task).__name__)
