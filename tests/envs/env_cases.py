"""Small environments for tests; worker processes import this file, so it imports little."""

import os
import sys

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Counter(gym.Env):
    """Observes (steps, seed's draw, action received); ends after `length` steps as told."""

    def __init__(self, length=5, terminates=False):
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.action_space = spaces.Box(np.array([2.0]), np.array([6.0]), dtype=np.float64)
        self.length, self.terminates = length, terminates

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.draw = 0, self.np_random.uniform()
        return np.array([0.0, self.draw, 0.0]), {}

    def step(self, action):
        self.steps += 1
        over = self.steps >= self.length
        obs = np.array([self.steps, self.draw, action[0]])
        return obs, float(self.steps), over and self.terminates, over and not self.terminates, {}


class Dictionary(Counter):
    """Observations and actions of several parts and shapes."""

    def __init__(self):
        super().__init__()
        parts = {"image": spaces.Box(0, 255, (2, 3), np.uint8), "x": spaces.Box(-1, 1, (2,))}
        self.observation_space = spaces.Dict({"a": spaces.Dict(parts), "b": spaces.Box(-1, 1, ())})
        self.action_space = spaces.Box(-2.0, 2.0, (2, 2))

    def observation(self):
        image = np.arange(6, dtype=np.uint8).reshape(2, 3)
        return {
            "a": {"image": image, "x": np.array([0.25, 0.5], np.float32)},
            "b": np.array(self.steps / 10, np.float32),
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation(), {}

    def step(self, action):
        assert action.shape == (2, 2)
        assert action.dtype == np.float32
        self.steps += 1
        return self.observation(), float(action.sum()), False, False, {}


class Unseeded(Counter):
    """Draws from a generator that no seed reaches: an episode cannot be replayed."""

    def step(self, action):
        obs, *rest = super().step(action)
        obs[1] = int.from_bytes(os.urandom(2), "big")
        return obs, *rest


class Blows(Counter):
    """Returns a number that is none at its third step."""

    def step(self, action):
        obs, *rest = super().step(action)
        return np.where(self.steps == 3, np.nan, obs), *rest


class Fails(Counter):
    """Raises, or ends its whole process."""

    def __init__(self, dies=False):
        super().__init__()
        self.dies = dies

    def step(self, action):
        if self.dies:
            os._exit(3)
        raise ZeroDivisionError("a bug of the environment's author")


class Modules(Counter):
    """Reports whether its process has loaded JAX or a renderer."""

    def step(self, action):
        obs, *rest = super().step(action)
        obs[0] = len({"jax", "glfw", "OpenGL", "torch"} & set(sys.modules))
        obs[1] = os.getpid()
        return obs, *rest


def space_env(action=None, observation=None):
    env = Counter()
    env.action_space = action or env.action_space
    env.observation_space = observation or env.observation_space
    return env
