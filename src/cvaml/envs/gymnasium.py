"""Any Gymnasium environment or dm_control task with continuous actions, in worker processes."""

import difflib
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise
from multiprocessing import Pipe
from typing import Any

import gymnasium as gym
import numpy as np
from jaxtyping import Bool, Float32, Shaped

from cvaml.envs import member
from cvaml.envs.generators import ActionNoise, generator_words, set_generator_words
from cvaml.envs.vector import State, Step, Task, check_state
from cvaml.types import UserError


class GymnasiumEnv:
    """Members in worker processes, each process with a block of them.

    Gymnasium environments offer no way to store their state. A member therefore remembers the
    seed and the actions of its running episode; `restore` resets with the seed and replays them.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        seeds: Sequence[int],
        threads: int,
        action_noise: float,
        action_repeat: int | None,
    ) -> None:
        sources = [_source(task) for task in tasks]
        self.members, self.tasks = len(tasks), tuple(_name(task) for task in tasks)
        default = 2 if all(kind == "suite" for kind, _ in sources) else 1
        self.action_repeat = action_repeat or default
        self._noise = ActionNoise(seeds, action_noise)
        self._generators = [np.random.default_rng(seed) for seed in seeds]
        self._next_seeds = [_episode_seed(generator) for generator in self._generators]
        self._seeds = [0] * self.members
        self._actions: list[list[np.ndarray]] = [[] for _ in tasks]
        # A worker has neighbouring members, first to last (exclusive).
        count = max(threads, 1)
        bounds = [self.members * worker // count for worker in range(count + 1)]
        self._spans = list(pairwise(bounds))
        self._workers: list[_Worker | _Inline] = []
        try:
            for start, stop in self._spans:
                kind = _Worker if threads > 0 else _Inline
                self._workers.append(kind(sources[start:stop], self.action_repeat))
            sizes = [size for answer in self._all("sizes") for size in answer]
        except BaseException:
            self.close()
            raise
        if len(set(sizes)) > 1:
            self.close()
            found = dict(zip(self.tasks, sizes, strict=True))
            raise UserError(f"members need equal observation and action sizes, found {found}")
        self.observation_size, self.action_size = sizes[0]
        self._obs = np.zeros((self.members, self.observation_size), np.float32)

    @property
    def obs(self) -> Float32[np.ndarray, "S o"]:
        """The current observations."""
        return self._obs.copy()

    def reset(self) -> Float32[np.ndarray, "S o"]:
        """Starts a new episode in every member; returns the first observations."""
        for index in range(self.members):
            self.reset_member(index)
        return self.obs

    def reset_member(self, member: int) -> Float32[np.ndarray, "o"]:
        """Starts a new episode in one member; returns its first observation."""
        worker = next(w for w, (_, stop) in enumerate(self._spans) if member < stop)
        index = member - self._spans[worker][0]
        self._workers[worker].send("reset", index, self._next_seeds[member])
        self._obs[member] = self._workers[worker].receive()
        self._begin(member)
        return np.array(self._obs[member])

    def step(self, actions: Shaped[np.ndarray, "S a"]) -> Step:
        """Takes one agent step with actions in [-1, 1] (clipped to it)."""
        applied = self._noise(actions).astype(np.float32)
        arguments = [(applied[i:j], self._next_seeds[i:j]) for i, j in self._spans]
        outcomes = [row for answer in self._all("step", arguments) for row in answer]
        obs, reward, terminated, truncated, final_obs, error = zip(*outcomes, strict=True)
        for index in range(self.members):
            self._actions[index].append(applied[index])
            if terminated[index] or truncated[index]:
                self._begin(index)
        self._obs = np.stack(obs)
        return Step(
            obs=self.obs,
            reward=np.array(reward, np.float32),
            terminated=np.array(terminated, bool),
            truncated=np.array(truncated, bool),
            final_obs=np.stack(final_obs),
            physics_error=np.array(error, bool),
        )

    def state(self) -> State:
        """The seeds and actions of the running episodes, the generators, the observations."""
        lengths = np.array([len(actions) for actions in self._actions], np.int64)
        actions = np.zeros((self.members, max(1, lengths.max()), self.action_size), np.float32)
        for index, taken in enumerate(self._actions):
            actions[index, : len(taken)] = np.reshape(taken, (-1, self.action_size))
        return {
            "obs": self._obs.copy(),
            "episode_seed": np.array(self._seeds, np.int64),
            "next_seed": np.array(self._next_seeds, np.int64),
            "episode_length": lengths,
            "episode_actions": actions,
            "generator": np.stack([generator_words(g) for g in self._generators]),
            **self._noise.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> Bool[np.ndarray, "S"]:
        """Replays the running episodes; where one does not come back, starts another, and warns."""
        check_state(state, self.state(), growing="episode_actions")
        for generator, words in zip(self._generators, state["generator"], strict=True):
            set_generator_words(generator, words)
        self._noise.restore(state)
        self._seeds = [int(seed) for seed in state["episode_seed"]]
        self._next_seeds = [int(seed) for seed in state["next_seed"]]
        lengths = state["episode_length"]
        taken = [state["episode_actions"][i, : lengths[i]] for i in range(self.members)]
        self._actions = [list(actions.astype(np.float32)) for actions in taken]
        rows = list(zip(self._seeds, taken, state["obs"], self._next_seeds, strict=True))
        answers = self._all("replay", [(rows[i:j],) for i, j in self._spans])
        came_back, obs = zip(*(row for answer in answers for row in answer), strict=True)
        continued, self._obs = np.array(came_back, bool), np.stack(obs)
        for index in np.flatnonzero(~continued):
            self._begin(int(index))
        if not continued.all():
            names = ", ".join(f"{i} ({self.tasks[i]})" for i in np.flatnonzero(~continued))
            warnings.warn(
                f"{(~continued).sum()} of {self.members} members could not be brought back to "
                f"where they were and started a new episode: {names}",
                stacklevel=2,
            )
        return continued

    def close(self) -> None:
        """Ends the worker processes; may be called twice."""
        for worker in self._workers:
            worker.close()
        self._workers = []

    def _begin(self, index: int) -> None:
        """Notes that the member's new episode started from its next seed."""
        self._seeds[index] = self._next_seeds[index]
        self._next_seeds[index] = _episode_seed(self._generators[index])
        self._actions[index] = []

    def _all(self, method: str, arguments: Sequence[tuple[Any, ...]] = ()) -> list[Any]:
        """Calls a method in all workers at once."""
        for worker, given in zip(self._workers, arguments or [()] * len(self._spans), strict=True):
            worker.send(method, *given)
        answers, errors = [], []
        for worker in self._workers:  # all answers are taken, or the next call would get them
            try:
                answers.append(worker.receive())
            except (RuntimeError, UserError) as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return answers


class _Inline:
    """A block in the calling process: no start-up time, no parallelism."""

    def __init__(self, sources: Sequence[tuple[str, Any]], action_repeat: int) -> None:
        try:
            self._block = member.Block(sources, action_repeat)
        except member.RefusedError as error:
            raise UserError(str(error)) from error
        self._answer: Any = None

    def send(self, method: str, *arguments: Any) -> None:
        self._answer = getattr(self._block, method)(*arguments)

    def receive(self) -> Any:
        return self._answer

    def close(self) -> None:
        self._block.close()


class _Worker:
    """A block in a process of its own, which ends with this one however this one ends."""

    def __init__(self, sources: Sequence[tuple[str, Any]], action_repeat: int) -> None:
        self._pipe, theirs = Pipe()
        environment = {"OMP_NUM_THREADS": "1", **os.environ}
        # -P: this folder has a file called gymnasium.py, which must not be found first.
        command = [sys.executable, "-P", str(member.__file__), str(theirs.fileno())]
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)
        theirs.close()
        # The first answer is awaited with the first call's: all workers start side by side.
        self.send("make", list(sys.path), _pickled(sources), action_repeat)
        self._starting = True

    def send(self, method: str, *arguments: Any) -> None:
        try:
            self._pipe.send((method, arguments))
        except OSError as error:
            raise self._gone() from error

    def receive(self) -> Any:
        if self._starting:
            self._starting = False
            self.receive()
        try:
            outcome, answer = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise self._gone() from error
        if outcome == "refused":
            raise UserError(answer)
        if outcome == "failed":
            raise RuntimeError(f"an environment failed in its worker process:\n{answer}")
        return answer

    def close(self) -> None:
        self._pipe.close()  # the worker takes it as its end
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _gone(self) -> RuntimeError:
        try:
            code: int | str = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = "none"
        return RuntimeError(f"an environment's worker process has died, exit code {code}")


def _source(task: Task) -> tuple[str, Any]:
    """Where a task's environment comes from, in the words of `member.make_member`."""
    if not isinstance(task, str):
        return "factory", task
    try:  # the specification, not the id: a worker does not know what this process registered
        return "gymnasium", gym.spec(task)
    except (gym.error.Error, ImportError):
        suite = [f"{domain}-{name}" for domain, name in member.suite_module().ALL_TASKS]
        if task in suite:
            return "suite", task
        near = difflib.get_close_matches(task, [*suite, *gym.registry], n=1, cutoff=0.0)
        raise UserError(
            f"unknown task {task!r}; the nearest is {near[0]!r}; allowed are dm_control's tasks "
            "(domain-task) and registered Gymnasium ids"
        ) from None


def _name(task: Task) -> str:
    return task if isinstance(task, str) else getattr(task, "__name__", type(task).__name__)


def _pickled(sources: Sequence[tuple[str, Any]]) -> bytes:
    if not any(callable(getattr(what, "entry_point", what)) for _, what in sources):
        return pickle.dumps(sources)
    # Takes lambdas, too, and what a script or notebook defines.
    import cloudpickle  # type: ignore[import-untyped]

    return bytes(cloudpickle.dumps(sources))


def _episode_seed(generator: np.random.Generator) -> int:
    return int(generator.integers(2**31))
