"""A trained population from its run folder."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from cvaml.agent.evaluate import greedy
from cvaml.agent.population import init_population
from cvaml.agent.state import AgentState, Flat, Spec, flat_policy
from cvaml.agent.train_config import Task, TrainConfig, from_settings
from cvaml.losses import Variant
from cvaml.runs.arrays import BrokenFileError, restore_like
from cvaml.runs.checkpoints import CheckpointError, Checkpoints
from cvaml.runs.folder import RunFolder
from cvaml.types import UserError

STUDY = "train"


@dataclass(frozen=True)
class TrainedPopulation:
    """Members as their newest checkpoint has them."""

    config: TrainConfig
    """How they were trained."""
    spec: Spec
    """Sizes of observation and action."""
    state: AgentState
    """Parameters and optimisers, members first."""
    agent_step: int
    """How far training had come."""

    def act(
        self, observation: Float[np.ndarray, "*S o"], key: PRNGKeyArray | None = None
    ) -> Float[np.ndarray, "*S a"]:
        """Actions without exploration.

        Args:
            observation: one per member, [S, o]; or [o] where there is one member only.
            key: for the planner's samples; the same key and observation give the same action.

        Returns:
            Actions in [-1, 1], shaped like the observations.

        Raises:
            UserError: the observations do not fit.
        """
        members = len(self.config.tasks)
        seen = np.asarray(observation, np.float32)
        single = (self.spec.observation_size,)
        if seen.shape != (members, *single) and not (seen.shape == single and members == 1):
            raise UserError(
                f"observation has shape {seen.shape}, expected {(members, *single)}: one row for "
                "each member; `member(i)` is a single one"
            )
        keys = jax.random.split(jax.random.key(0) if key is None else key, members)
        policy = flat_policy(Flat.of(self.state))
        stacked = jnp.asarray(seen.reshape(members, 1, -1))
        actions, _ = greedy(policy, stacked, keys, jnp.int32(0), self.config.agent)
        return np.asarray(actions).reshape(*seen.shape[:-1], -1)

    def member(self, index: int) -> "TrainedPopulation":
        """One member alone."""
        if not 0 <= index < len(self.config.tasks):
            raise UserError(
                f"there is no member {index}; allowed are 0 to {len(self.config.tasks) - 1}"
            )
        config = replace(
            self.config,
            task=(self.config.tasks[index],),
            seed=self.config.seeds[index],
            members=1,
            member_settings={n: [v[index]] for n, v in self.config.member_settings.items()},
        )
        state = jax.tree.map(lambda leaf: leaf[index : index + 1], self.state)
        return replace(self, config=config, state=state)


def load(
    run: Path | str, *, variant: Variant | None = None, task: tuple[Task, ...] | None = None
) -> TrainedPopulation:
    """The population of a run folder, finished or not. Reads data, executes nothing from it.

    Args:
        run: the run folder.
        variant: the variant the run was trained with, if it was one of your own.
        task: the environment factories, if the run was trained on your own; only `act` does
            without them.

    Raises:
        UserError: the folder holds no training run, or none of its checkpoints is whole.
    """
    path = Path(run)
    if not (path / "config.json").exists():
        raise UserError(f"{path} is not a run folder: it has no config.json")
    stored = RunFolder(path).read_json("config.json")
    if stored.get("study") != STUDY:
        raise UserError(f"{path} holds the study {stored.get('study')!r}, not a training run")
    config = from_settings(stored.get("settings", {}), path, variant)
    if task is not None:
        config = replace(config, task=task)
    try:
        found = Checkpoints(path).read_newest()
    except CheckpointError as error:
        raise UserError(str(error)) from None
    spec = Spec(*found.meta["spec"])
    members = len(config.tasks)
    keys = jax.random.split(jax.random.key(0), members)
    # Only shapes matter here: nothing is initialised.
    template = jax.eval_shape(
        partial(init_population, config=config.agent, spec=spec, settings=config.member_settings),
        keys,
    )
    template = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), template)
    try:
        state = restore_like({"state": template}, found.arrays)["state"]
    except BrokenFileError as error:
        raise UserError(f"{path} was trained by another version of the agent: {error}") from None
    return TrainedPopulation(config, spec, jax.tree.map(jnp.asarray, state), found.step)
