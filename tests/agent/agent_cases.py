"""Small agents and replays for the agent's tests."""

from collections.abc import Callable

import jax
import numpy as np

from cvaml.agent import population
from cvaml.agent.config import AgentConfig, preset
from cvaml.agent.config_text import override
from cvaml.agent.state import Spec

TINY = {
    "network.width": "16",
    "network.latent": "8",
    "network.simnorm_size": "4",
    "network.bins": "31",
    "network.value_limit": "50",
    "planner.iterations": "2",
    "planner.samples": "16",
    "planner.elites": "4",
    "batch_size": "32",
}


def tiny(variant: str = "cvaml-1-0", model: str = "stochastic", k=None, **settings) -> AgentConfig:
    """An agent that compiles and runs in seconds; dots in setting names are written `__`."""
    changed = {name.replace("__", "."): str(value) for name, value in settings.items()}
    return override(preset("small", variant=variant, model=model, k=k), TINY | changed)


def keys(members: int, seed: int = 0) -> jax.Array:
    return jax.random.split(jax.random.key(seed), members)


def filled(
    spec: Spec,
    members: int,
    steps: int,
    rows: int = 0,
    episode: int = 10,
    reward: Callable[[np.ndarray, np.ndarray], np.ndarray] = lambda o, a: a[:, 0],
    seed: int = 0,
    terminates: bool = False,
):
    """A replay of uniform random transitions; all members see the same data."""
    generator = np.random.default_rng(seed)
    replay = population.init_replay(spec, members, rows or 2 * steps + 2)

    def draw(size: int) -> np.ndarray:
        one = generator.uniform(-1, 1, (1, size)).astype(np.float32)
        return np.repeat(one, members, axis=0)

    observation = draw(spec.observation_size)
    for t in range(steps):
        action, successor = draw(spec.action_size), draw(spec.observation_size)
        ends = np.full(members, (t + 1) % episode == 0)
        never = np.zeros(members, bool)
        replay = population.add(
            replay,
            observation,
            action,
            reward(observation, action).astype(np.float32),
            ends if terminates else never,
            never if terminates else ends,
            successor,
        )
        observation = draw(spec.observation_size) if ends[0] else successor
    return replay
