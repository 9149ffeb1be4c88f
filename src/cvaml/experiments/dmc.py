"""The deep study: dog and humanoid tasks, every variant and ablation, as cells in order of worth.

A cell trains the tasks of one group (equal spaces, so one program) with one arm (variant, model,
number of samples) for a block of members.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from cvaml.runs.cells import Cell, Tick
from cvaml.types import UserError

GROUPS = {
    "dog": ("dog-stand", "dog-walk", "dog-trot", "dog-run"),
    "humanoid": ("humanoid-stand", "humanoid-walk", "humanoid-run"),
}
ACTION_REPEAT = 2
BLOCK, SMALL_BLOCK = 10, 2


@dataclass(frozen=True)
class Arm:
    """What a curve of the study is: a variant with its model and number of samples."""

    variant: str
    model: Literal["stochastic", "deterministic"] = "stochastic"
    k: int | None = None
    """Model samples, where not the variant's default."""
    noisy: bool = False
    """Whether the environments add noise to the actions."""

    @property
    def label(self) -> str:
        """A name for folders and options."""
        samples = f"-k{self.k}" if self.k else ""
        return f"{self.model}-{self.variant}{samples}{'-noisy' if self.noisy else ''}"


_BOTH = ("dog", "humanoid")
_ABLATIONS = (
    Arm("aux-only"),
    Arm("aux-only", "deterministic"),
    Arm("cvaml-1-0+noaux"),
    Arm("cvaml-1-1+noaux"),
    Arm("td3"),
)
_NOISY = tuple(
    Arm(variant, k=4, noisy=True) for variant in ("cvaml-1-0", "vaml-1-0", "cvaml-1-1", "vaml-1-1")
)
STAGES: dict[str, tuple[tuple[Arm, tuple[str, ...]], ...]] = {
    "stochastic cvaml-1-0 on all tasks": ((Arm("cvaml-1-0"), _BOTH),),
    "vaml-1-1 against cvaml-1-1 on humanoid": (
        (Arm("vaml-1-1"), ("humanoid",)),
        (Arm("cvaml-1-1"), ("humanoid",)),
    ),
    "deterministic against stochastic models on dog": (
        (Arm("vaml-1-0", "deterministic"), ("dog",)),
        (Arm("vaml-1-0"), ("dog",)),
        (Arm("vaml-1-1", "deterministic"), ("dog",)),
        (Arm("vaml-1-1"), ("dog",)),
    ),
    "ablations": tuple((arm, _BOTH) for arm in _ABLATIONS),
    "cvaml against vaml at equal k with action noise": tuple((arm, _BOTH) for arm in _NOISY),
    "vaml at the k of cvaml": (
        (Arm("vaml-1-0", k=4), _BOTH),
        (Arm("vaml-1-1", k=4), _BOTH),
    ),
    "the other cells of the comparison": (
        (Arm("cvaml-1-1"), ("dog",)),
        (Arm("vaml-1-0"), ("humanoid",)),
        (Arm("vaml-1-0", "deterministic"), ("humanoid",)),
        (Arm("vaml-1-1", "deterministic"), ("humanoid",)),
    ),
}
"""The questions of the study, most informative first, each with the arms and groups it needs."""
ARMS = tuple(dict.fromkeys(arm.label for stage in STAGES.values() for arm, _ in stage))


@dataclass(frozen=True)
class Config:
    """Returns of every variant on seven dog and humanoid tasks."""

    out: Path = Path("runs/dmc")
    """Folder of the study; every cell is a run folder in it."""
    tasks: tuple[str, ...] = GROUPS["dog"] + GROUPS["humanoid"]
    """The tasks; those of one group train in one program."""
    arms: tuple[str, ...] = ARMS
    """What is compared: model, variant, and k where it is not the variant's default."""
    members: int = 30
    """Members (seeds) of each task and arm."""
    block: int | None = None
    """Members of each task in one cell: 10, or 2 under a budget, if not given."""
    env_steps: int = 1_000_000
    """Environment steps of each member, two for each agent step."""
    action_noise: float = 0.3
    """Standard deviation of the noise that the environments of the noisy arms add to actions."""
    seed: int = 0
    """Seed of the first member; equal cells of all arms have equal seeds."""
    preset: Literal["paper", "small"] = "paper"
    """Sizes and intervals: the paper's, or those of a laptop."""
    set: Annotated[tuple[tuple[str, ...], ...], tyro.conf.UseAppendAction] = ()
    """key=value for any setting of the agent, the same in all cells."""
    checkpoint_every: int | None = None
    """Agent steps between checkpoints, if not the preset's."""
    cpus: float = 16.0
    """Cores of a cell when Ray places it."""
    gpus: float = 1.0
    """GPUs of a cell when Ray places it."""
    budget: float | None = None
    """Hours of one device: run only the most informative cells that fit. If the first question
    does not fit with all environment steps, all runs take half of them."""
    steps_per_s: float | None = None
    """Agent steps per second of one cell, all its members together, for times and budget."""
    bench: tuple[Path, ...] = ()
    """JSON files of `cvaml bench train` to take that rate from; one for each group, or one."""


@dataclass(frozen=True)
class Piece:
    """A cell of the study before it becomes one of the engine's."""

    stage: str
    arm: Arm
    group: str
    tasks: tuple[str, ...]
    members: int
    seed: int
    agent_steps: int

    @property
    def name(self) -> str:
        """A stable name."""
        last = self.seed + self.members * len(self.tasks) - 1
        missing = set(GROUPS[self.group]) - set(self.tasks)
        some = "" if not missing else "+" + "+".join(t.split("-", 1)[1] for t in self.tasks)
        steps = self.agent_steps * ACTION_REPEAT
        return f"{self.group}{some}-{self.arm.label}-seeds{self.seed:04}-{last:04}-{steps}"

    @property
    def steps(self) -> int:
        """Agent steps of all members together."""
        return self.agent_steps * self.members * len(self.tasks)


def pieces(config: Config) -> list[Piece]:
    """The study's cells: every question with the first block of members, then the next block.

    Raises:
        UserError: the configuration makes no sense; no work has been done.
    """
    _check(config)
    block = config.block or (BLOCK if config.budget is None else SMALL_BLOCK)
    found = []
    for first in range(0, config.members, block):
        for stage, needed in STAGES.items():
            for arm, groups in needed:
                for group in groups:
                    tasks = tuple(task for task in GROUPS[group] if task in config.tasks)
                    if not tasks or arm.label not in config.arms:
                        continue
                    members = min(block, config.members - first)
                    seed = config.seed + first * len(tasks)
                    agent_steps = config.env_steps // ACTION_REPEAT
                    found.append(Piece(stage, arm, group, tasks, members, seed, agent_steps))
    if not found:
        raise UserError("no cell of the study has one of these --arms and --tasks")
    return found


def run_cell(
    root: Path,
    tick: Tick,
    name: str,
    tasks: list[str],
    members: int,
    seed: int,
    agent_steps: int,
    variant: str,
    model: str,
    k: int | None,
    action_noise: float,
    preset: str,
    settings: dict[str, str],
    checkpoint_every: int | None,
) -> None:
    """Trains one cell's population, or goes on with it."""
    from cvaml.agent.config import preset as agent_preset
    from cvaml.agent.config_text import override
    from cvaml.agent.train import train, use_compilation_cache, use_cpu_devices
    from cvaml.agent.train_config import few_random_steps, train_preset
    from cvaml.experiments.train import cache_folder

    agent = override(agent_preset(preset, variant=variant, model=model, k=k), settings)
    run = dataclasses.replace(
        train_preset(preset, root / name, agent),
        task=tuple(tasks),
        members=members,
        agent_steps=agent_steps,
        seed=seed,
        action_noise=action_noise,
    )
    if checkpoint_every is not None:
        run = dataclasses.replace(run, checkpoint_every=checkpoint_every)
    if preset == "small" and "random_steps" not in settings:
        run = few_random_steps(run)
    use_compilation_cache(cache_folder())
    use_cpu_devices(len(run.tasks))
    train(run)


def as_cell(config: Config, piece: Piece) -> Cell:
    """The piece for the engine."""
    from cvaml.experiments.train import parse_settings

    return Cell(
        name=piece.name,
        function="cvaml.experiments.dmc:run_cell",
        arguments={
            "name": piece.name,
            "tasks": list(piece.tasks),
            "members": piece.members,
            "seed": piece.seed,
            "agent_steps": piece.agent_steps,
            "variant": piece.arm.variant,
            "model": piece.arm.model,
            "k": piece.arm.k,
            "action_noise": config.action_noise if piece.arm.noisy else 0.0,
            "preset": config.preset,
            "settings": parse_settings(config.set),
            "checkpoint_every": config.checkpoint_every,
        },
        output=piece.name,
        done=f"{piece.name}/done.json",
        cpus=config.cpus,
        gpus=config.gpus,
        work=float(piece.steps),
    )


def _check(config: Config) -> None:
    for name, known in (("tasks", GROUPS["dog"] + GROUPS["humanoid"]), ("arms", ARMS)):
        for value in getattr(config, name):
            if value not in known:
                raise UserError(f"--{name}: no {value!r}; allowed are {', '.join(known)}")
    for name, least in (
        ("members", 1),
        ("block", 1),
        ("env_steps", 4),
        ("checkpoint_every", 1),
        ("seed", 0),
    ):
        value = getattr(config, name)
        if value is not None and value < least:
            option = name.replace("_", "-")
            raise UserError(f"--{option} must be at least {least}, got {value}")
    for name in ("budget", "steps_per_s"):
        value = getattr(config, name)
        if value is not None and not 0 < value < float("inf"):
            option = name.replace("_", "-")
            raise UserError(f"--{option} must be positive and finite, got {value}")
    if config.action_noise <= 0:
        raise UserError(f"--action-noise must be positive, got {config.action_noise}")
    if config.cpus <= 0 or config.gpus < 0:
        raise UserError(f"--cpus {config.cpus} and --gpus {config.gpus} leave no place to run")
    if config.budget is not None and config.steps_per_s is None and not config.bench:
        raise UserError("--budget needs a rate: --steps-per-s, or --bench with a JSON file")
