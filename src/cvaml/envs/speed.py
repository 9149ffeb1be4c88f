"""How fast the simulator itself is: what training is measured against, on the same machine."""

import time
from collections.abc import Callable

import numpy as np

from cvaml.envs.dmc import DmcEnv
from cvaml.envs.vector import VectorEnv

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
    return _rate(env, env.physics if isinstance(env, DmcEnv) else env.step, seconds, seed)


def stepping(env: VectorEnv, seconds: float = 3.0, seed: int = 0) -> float:
    """Agent steps per second of `env.step`, as `bare_physics` measures the simulator."""
    return _rate(env, env.step, seconds, seed)


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
