"""The one interface between environments and whoever acts in them: S members stepped at once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float32, Shaped

from cvaml.types import UserError, usable_cores

# What `state` returns: arrays only, so that a checkpoint needs no pickles. Shapes may change
# from call to call (a running episode grows), none of them is empty.
State = dict[str, np.ndarray]
Task = str | Callable[[], Any]


@dataclass(frozen=True)
class Step:
    """What one agent step of S members gave."""

    obs: Float32[np.ndarray, "S o"]
    """What to act on next: where an episode ended, the first observation of the new one."""
    reward: Float32[np.ndarray, "S"]
    """Summed over the environment steps of this agent step."""
    terminated: Bool[np.ndarray, "S"]
    """The episode ended in a state of value 0."""
    truncated: Bool[np.ndarray, "S"]
    """The episode was cut off: the value of `final_obs` still counts."""
    final_obs: Float32[np.ndarray, "S o"]
    """The true successor of this step, before any reset; equals `obs` where no episode ended."""
    physics_error: Bool[np.ndarray, "S"]
    """The simulation diverged: truncated, and `final_obs` repeats the last good observation."""


@runtime_checkable
class VectorEnv(Protocol):
    """S members, each with its own seed, that never touch one another.

    A member's trajectory is a function of its seed and its actions: not of S, of the number of
    threads or of the other members. An episode that ends restarts within the same `step`.
    """

    members: int
    observation_size: int
    action_size: int
    action_repeat: int
    tasks: tuple[str, ...]
    """One name per member."""

    @property
    def obs(self) -> Float32[np.ndarray, "S o"]:
        """The current observations, as the last `reset`, `step` or `restore` left them."""

    def reset(self) -> Float32[np.ndarray, "S o"]:
        """Starts a new episode in every member; returns the first observations."""

    def reset_member(self, member: int) -> Float32[np.ndarray, "o"]:
        """Starts a new episode in one member; returns its first observation."""

    def step(self, actions: Shaped[np.ndarray, "S a"]) -> Step:
        """Takes one agent step with actions in [-1, 1] (clipped to it)."""

    def state(self) -> State:
        """Everything needed to continue bit-identically after `restore`."""

    def restore(self, state: Mapping[str, np.ndarray]) -> Bool[np.ndarray, "S"]:
        """Continues from `state`; False where a new episode had to be started instead."""

    def close(self) -> None:
        """Ends worker processes and frees the simulators; may be called twice."""


def make_env(
    task: Task | Sequence[Task],
    seeds: Sequence[int],
    *,
    threads: int | None = None,
    action_noise: float = 0.0,
    action_repeat: int | None = None,
) -> VectorEnv:
    """Makes the environment of a population: one member per seed.

    Args:
        task: a dm_control task (`humanoid-walk`), a Gymnasium id (`Pendulum-v1`), a factory
            without arguments that returns a `gymnasium.Env`, or one of these per seed.
        seeds: one seed per member.
        threads: threads (worker processes for other tasks than the seven of `dmc.py`), at most
            one per member; None is one per core, 0 steps everything in the calling process.
        action_noise: standard deviation of Gaussian noise added to every agent action, before it
            is clipped to [-1, 1], from a generator of the member's own.
        action_repeat: environment steps per agent step; None is 2 for dm_control, else 1.

    Returns:
        The environment; call `reset` before the first `step`.
    """
    seeds = [int(seed) for seed in seeds]
    tasks = [task] * len(seeds) if isinstance(task, str) or callable(task) else list(task)
    _check(tasks, seeds, threads, action_noise, action_repeat)
    threads = min(len(seeds), usable_cores() if threads is None else threads)

    # Here, not above: both import the simulator, which the interface does not need.
    from cvaml.envs.dmc import TASKS, DmcEnv
    from cvaml.envs.gymnasium import GymnasiumEnv

    names = [name for name in tasks if isinstance(name, str) and name in TASKS]
    if len(names) == len(seeds):
        return DmcEnv(names, seeds, threads, action_noise, action_repeat or 2)
    return GymnasiumEnv(tasks, seeds, threads, action_noise, action_repeat)


def check_state(stored: Mapping[str, Any], own: State, growing: str = "") -> None:
    """Refuses a stored state of other members, sizes or precision than the environment's own.

    Args:
        stored: what `restore` was given.
        own: what `state` returns now.
        growing: the array whose second axis may have any length.
    """
    for name, array in own.items():
        found: np.ndarray = np.asarray(stored.get(name, ()))
        shape, expected = list(found.shape), list(array.shape)
        if name == growing:
            del shape[1:2], expected[1:2]
        if shape != expected or found.dtype != array.dtype:
            raise UserError(
                f"the stored environment state does not fit: {name!r} is {found.dtype} "
                f"{found.shape}, expected {array.dtype} {array.shape}"
            )


def _check(
    tasks: Sequence[Task],
    seeds: Sequence[int],
    threads: int | None,
    action_noise: float,
    action_repeat: int | None,
) -> None:
    if not seeds:
        raise UserError("seeds is empty; give one seed per member")
    if any(not 0 <= seed < 2**32 for seed in seeds):
        raise UserError(f"seeds {seeds} must lie in [0, 2**32)")
    if len(tasks) != len(seeds):
        raise UserError(f"{len(tasks)} tasks for {len(seeds)} seeds; give one, or one per seed")
    if threads is not None and threads < 0:
        raise UserError(f"threads {threads} is negative; allowed are None, 0 or more")
    if not (np.isfinite(action_noise) and action_noise >= 0):
        raise UserError(f"action_noise {action_noise} must be finite and at least 0")
    if action_repeat is not None and action_repeat < 1:
        raise UserError(f"action_repeat {action_repeat} must be at least 1")
