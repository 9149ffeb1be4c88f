"""How fast the simulator itself is: what training is measured against, on the same machine."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Shaped

from cvaml.envs.dmc import DmcEnv
from cvaml.envs.vector import State, VectorEnv

_BLOCK = 100  # agent steps between two looks at the clock's limit, all with prepared actions


def bare_physics(env: VectorEnv, seconds: float = 3.0, seed: int = 0) -> float:
    """Agent steps per second of the simulator alone, all members together, random actions.

    For `DmcEnv` that is MuJoCo's stepping and nothing else: no observations, rewards or resets.
    Other environments cannot be taken apart, so there it is the rate of `step`. The environment
    is left as it was found.

    Args:
        env: the environment, after its first `reset`.
        seconds: how long to measure, after a short warm-up.
        seed: of the actions.
    """
    return _rate(env, _simulator(env), seconds, seed)


class Recording(NamedTuple):
    """A stretch of a run: where it began and what was done."""

    state: State
    actions: Shaped[np.ndarray, "T S a"]


def replayed_physics(env: VectorEnv, recordings: Sequence[Recording]) -> float:
    """Agent steps per second of the simulator alone along recorded stretches of a run.

    Contacts make the simulator slow, and a learning agent has other contacts than random actions
    have: what training is compared with must be measured along its own trajectories.

    Args:
        env: of the run; it is left as it was found.
        recordings: at least one, none with an episode's end inside.
    """
    advance = _simulator(env)
    stored, spent, steps = env.state(), 0.0, 0
    for state, actions in recordings:
        env.restore(state)
        start = time.perf_counter()
        for action in actions:
            advance(action)
        spent += time.perf_counter() - start
        steps += len(actions) * env.members
    env.restore(stored)
    return steps / spent


def stepping(env: VectorEnv, seconds: float = 3.0, seed: int = 0) -> float:
    """Agent steps per second of `env.step`, as `bare_physics` measures the simulator."""
    return _rate(env, env.step, seconds, seed)


def _simulator(env: VectorEnv) -> Callable[[np.ndarray], object]:
    """The smallest part of `step` that holds the simulator."""
    return env.physics if isinstance(env, DmcEnv) else env.step


def _rate(
    env: VectorEnv, advance: Callable[[np.ndarray], object], seconds: float, seed: int
) -> float:
    shape = (_BLOCK, env.members, env.action_size)
    actions = np.random.default_rng(seed).uniform(-1, 1, shape)
    stored = env.state()
    for action in actions[:5]:
        advance(action)
    steps, spent = 0, 0.0
    while spent < seconds:
        # Each block starts from the same poses: lying on the floor costs more than falling.
        env.restore(stored)
        start = time.perf_counter()
        for action in actions:
            advance(action)
        spent += time.perf_counter() - start
        steps += _BLOCK * env.members
    env.restore(stored)
    return steps / spent
