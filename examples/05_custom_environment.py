"""An agent for your own environment: a cart that has to be held at 0 while the wind pushes it.

Any `gymnasium.Env` with Box observations and bounded Box actions will do: give the agent a function
that makes one. The run here is far too short to learn much; raise STEPS to a few thousand for that.

Run: python examples/05_custom_environment.py
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from cvaml.agent.load import load
from cvaml.agent.train import train
from cvaml.agent.train_config import train_preset
from cvaml.envs import make_env

STEPS, LENGTH = 300, 100


class WindyCart(gym.Env):
    """Observes position and velocity, pays 1 at rest at 0; leaving [-3, 3] ends the episode."""

    def __init__(self, wind: float = 0.1) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,))
        self.action_space = spaces.Box(-2.0, 2.0, (1,))  # the agent's [-1, 1] is scaled to this
        self.wind = wind

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)  # all randomness from `self.np_random`: episodes can be repeated
        self.state, self.steps = self.np_random.uniform(-1, 1, 2), 0
        return self.state.astype(np.float32), {}

    def step(self, action):
        position, velocity = self.state
        velocity = 0.95 * velocity + 0.1 * action[0] + self.wind * self.np_random.normal()
        self.state = np.array([position + 0.1 * velocity, velocity])
        self.steps += 1
        terminated = bool(abs(self.state[0]) > 3)  # worth nothing from here on
        truncated = self.steps >= LENGTH  # only cut off
        reward = float(np.exp(-(self.state**2).sum()))
        return self.state.astype(np.float32), reward, terminated, truncated, {}


def mean_return(act, episodes: int = 3) -> float:
    env = make_env(WindyCart, seeds=range(100, 100 + episodes), threads=0)
    obs, total = env.reset(), np.zeros(episodes)
    for _ in range(LENGTH):
        step = env.step(np.stack([act(row) for row in obs]))
        obs, total = step.obs, total + step.reward
    return float(total.mean())


def main() -> None:
    generator = np.random.default_rng(0)
    print(f"random actions: {mean_return(lambda _: generator.uniform(-1, 1, 1)):.1f} of {LENGTH}")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        config = replace(
            train_preset("small", out), task=(WindyCart,), members=2, agent_steps=STEPS, threads=0
        )
        train(config)
        agent = load(out, task=(WindyCart,)).member(0)
    print(f"after {STEPS} steps: {mean_return(agent.act):.1f} of {LENGTH}")


if __name__ == "__main__":
    main()
