"""One member: any environment with flat float32 observations and actions in [-1, 1].

Worker processes run this file by its path, so it imports nothing of the package: `cvaml` brings
JAX with it, which a worker neither needs nor has the time to load.
"""

import os
import pickle
import signal
import sys
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

EPISODE_STEPS = 1000
"""Environment steps after which an episode of any dm_control task is cut off."""


class RefusedError(ValueError):
    """The environment cannot be used, and why: the user's to solve."""


# One agent step of one member: the fields of `Step` in their order, without the member axis.
Outcome = tuple[np.ndarray, float, bool, bool, np.ndarray, bool]


def suite_module() -> Any:
    """`dm_control.suite`, imported with rendering off unless MUJOCO_GL asks for a backend."""
    chosen = os.environ.get("MUJOCO_GL")
    # dm_control and mujoco read this once, at import; the caller's environment stays as it was.
    os.environ["MUJOCO_GL"] = chosen or "disabled"
    try:
        from dm_control import suite
    finally:
        if chosen is None:
            del os.environ["MUJOCO_GL"]
    return suite


def load_task(name: str, seed: int = 0) -> Any:
    """dm_control's own environment of a task such as `humanoid-walk`, with flat observations."""
    domain, _, task = name.partition("-")
    return suite_module().load(
        domain,
        task,
        task_kwargs={"random": seed},
        environment_kwargs={"flat_observation": True},
    )


class SuiteEnv(gym.Env):
    """A dm_control task as a Gymnasium environment of at most 1000 steps."""

    def __init__(self, name: str) -> None:
        self._env = load_task(name)
        # A task may ask for the GL context, to upload its terrain for instance: there is none.
        physics = self._env.physics
        physics.__class__ = type("Headless", (type(physics),), {"contexts": None})
        spec = self._env.action_spec()
        # The declared bounds are what is scaled to [-1, 1]; an unbounded actuator is refused.
        low = np.broadcast_to(spec.minimum, spec.shape).astype(np.float64)
        high = np.broadcast_to(spec.maximum, spec.shape).astype(np.float64)
        self.action_space = spaces.Box(low, high, dtype=np.float64)
        self._size: tuple[int, ...] = self._env.observation_spec()["observations"].shape
        self.observation_space = spaces.Box(-np.inf, np.inf, self._size, np.float64)
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode from the task's own generator, seeded anew where a seed is given."""
        del options
        if seed is not None:
            self._env.task.random.seed(seed)
        self._steps = 0
        return self._env.reset().observation["observations"], {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One control step; a simulation that diverges reports `physics_error` in the info."""
        from dm_control.rl.control import PhysicsError

        try:
            timestep = self._env.step(action)
        except PhysicsError:
            return np.full(self._size, np.nan), 0.0, False, True, {"physics_error": True}
        self._steps += 1
        # dm_control marks a time limit by discount 1, a true end by another one.
        terminated = timestep.last() and timestep.discount < 1
        truncated = not terminated and (timestep.last() or self._steps >= EPISODE_STEPS)
        obs = timestep.observation["observations"]
        return obs, float(timestep.reward), bool(terminated), bool(truncated), {}


class Member:
    """An environment with flat observations, scaled actions, action repeat and autoreset."""

    def __init__(self, env: gym.Env, action_repeat: int) -> None:
        check_spaces(env)
        self._env, self._repeat = env, action_repeat
        self._actions: spaces.Box = env.action_space  # type: ignore[assignment]
        low, high = self._actions.low.astype(np.float64), self._actions.high.astype(np.float64)
        self._middle, self._half = (low + high) / 2, (high - low) / 2
        self.action_size = int(np.prod(self._actions.shape))
        self.observation_size = spaces.flatdim(env.observation_space)
        self.obs = np.zeros(self.observation_size, np.float32)

    def reset(self, seed: int) -> np.ndarray:
        """Starts an episode that is a function of `seed` and the actions to come."""
        self.obs = self._flat(self._env.reset(seed=seed)[0])
        return self.obs

    def step(self, action: np.ndarray, next_seed: int) -> Outcome:
        """One agent step; an episode that ends restarts at once, from `next_seed`."""
        final_obs, reward, terminated, truncated, error = self._repeated(action)
        obs = self.reset(next_seed) if terminated or truncated else final_obs
        self.obs = obs
        return obs, reward, terminated, truncated, final_obs, error

    def replay(
        self, seed: int, actions: np.ndarray, expected: np.ndarray, next_seed: int
    ) -> tuple[bool, np.ndarray]:
        """Brings back a running episode; if that fails, starts another one from `next_seed`.

        Returns:
            Whether the observation is `expected`, bit for bit, and the current observation.
        """
        self.reset(seed)
        for action in actions:
            self.obs, _, terminated, truncated, _ = self._repeated(action)
            if terminated or truncated:
                break
        else:
            if np.array_equal(self.obs, expected):
                return True, self.obs
        return False, self.reset(next_seed)

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()

    def _repeated(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, bool]:
        space = self._actions
        scaled = self._middle + self._half * action.astype(np.float64).reshape(self._middle.shape)
        scaled = np.clip(scaled, space.low, space.high).astype(space.dtype)
        total, obs = 0.0, self.obs
        for _ in range(self._repeat):
            raw, paid, terminated, truncated, info = self._env.step(scaled)
            successor, reward = self._flat(raw), float(paid)
            finite = np.isfinite(reward) and np.isfinite(successor).all()
            if not finite or info.get("physics_error"):
                return obs, total, False, True, True
            obs, total = successor, total + reward
            if terminated or truncated:
                return obs, total, bool(terminated), bool(truncated and not terminated), False
        return obs, total, False, False, False

    def _flat(self, obs: Any) -> np.ndarray:
        return np.asarray(spaces.flatten(self._env.observation_space, obs), np.float32)


def check_spaces(env: gym.Env) -> None:
    """Refuses what is not a Box, or a dictionary of them, and actions without finite bounds."""
    action, seen = env.action_space, env.observation_space
    if not isinstance(action, spaces.Box) or not np.issubdtype(action.dtype, np.floating):
        raise RefusedError(f"action space {action} is not continuous; allowed is a Box of floats")
    if not (np.isfinite(action.low).all() and np.isfinite(action.high).all()):
        raise RefusedError(f"action space {action} is unbounded; allowed are finite bounds")
    leaves = [seen]
    while leaves:
        leaf = leaves.pop()
        if isinstance(leaf, spaces.Dict | spaces.Tuple):
            leaves += leaf.values() if isinstance(leaf, spaces.Dict) else leaf.spaces
        elif not isinstance(leaf, spaces.Box):
            raise RefusedError(
                f"observation space {seen} holds {leaf}; allowed are Box and Dict of Box"
            )


def make_member(source: tuple[str, Any], action_repeat: int) -> Member:
    """Makes a member from ("suite", task), ("gymnasium", spec) or ("factory", callable)."""
    kind, what = source
    if kind == "suite":
        return Member(SuiteEnv(what), action_repeat)
    env = gym.make(what, disable_env_checker=True) if kind == "gymnasium" else what()
    if not isinstance(env, gym.Env):
        raise RefusedError(f"the factory returned {type(env).__name__}; allowed is a gymnasium.Env")
    return Member(env, action_repeat)


class Block:
    """The members that one process steps, one after another."""

    def __init__(self, sources: Sequence[tuple[str, Any]], action_repeat: int) -> None:
        self._members = [make_member(source, action_repeat) for source in sources]

    def sizes(self) -> list[tuple[int, int]]:
        """Observation and action size of every member."""
        return [(member.observation_size, member.action_size) for member in self._members]

    def reset(self, index: int, seed: int) -> np.ndarray:
        """Restarts one member."""
        return self._members[index].reset(seed)

    def step(self, actions: np.ndarray, next_seeds: Sequence[int]) -> list[Outcome]:
        """One agent step of all members of the block."""
        rows = zip(self._members, actions, next_seeds, strict=True)
        return [member.step(action, seed) for member, action, seed in rows]

    def replay(self, rows: Sequence[tuple[Any, ...]]) -> list[tuple[bool, np.ndarray]]:
        """Brings the members' running episodes back."""
        return [member.replay(*row) for member, row in zip(self._members, rows, strict=True)]

    def close(self) -> None:
        """Closes all members."""
        for member in self._members:
            member.close()


def serve(pipe: Connection) -> None:
    """Answers calls of `Block`'s methods until the other end is gone."""
    # Ctrl-C, and a batch system's end of a job, reach all processes at once. The main process may
    # still want to finish a step and write a checkpoint; when it ends, so does the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    block: Block | None = None
    while True:
        try:
            method, arguments = pipe.recv()
            answer: tuple[str, Any] = ("done", None)
            try:
                if method == "make":
                    block = _make_block(*arguments)
                else:
                    answer = ("done", getattr(block, method)(*arguments))
            except RefusedError as error:
                answer = ("refused", str(error))
            except Exception:
                answer = ("failed", traceback.format_exc())
            pipe.send(answer)
        except (EOFError, OSError):
            return


def _make_block(path: Sequence[str], pickled: bytes, action_repeat: int) -> Block:
    sys.path[:] = path  # a factory's module is found where the main process found it
    return Block(pickle.loads(pickled), action_repeat)


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
