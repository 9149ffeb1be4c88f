"""The seven study tasks on `mujoco.batch`: all members in one simulator with its own threads.

Initial states come from dm_control itself and simulator states are bit-identical to it; what is
seen and paid is computed for all members at once (`bodies.py`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Shaped

from cvaml.envs.generators import ActionNoise, LegacyGenerators
from cvaml.envs.member import EPISODE_STEPS, load_task
from cvaml.envs.vector import State, Step, check_state
from cvaml.types import UserError

TASKS = {
    "humanoid-stand": 0.0,
    "humanoid-walk": 1.0,
    "humanoid-run": 10.0,
    "dog-stand": 0.0,
    "dog-walk": 1.0,
    "dog-trot": 3.0,
    "dog-run": 9.0,
}
"""Task name -> target speed; 0 is a task of standing."""


class DmcEnv:
    """Members of one body, humanoid or dog, each with its own task and seed."""

    def __init__(
        self,
        tasks: Sequence[str],
        seeds: Sequence[int],
        threads: int,
        action_noise: float,
        action_repeat: int,
    ) -> None:
        domains = {task.partition("-")[0] for task in tasks}
        if len(domains) > 1:
            raise UserError(f"tasks {', '.join(tasks)} mix bodies; members need equal spaces")
        self.members, self.tasks, self.action_repeat = len(tasks), tuple(tasks), action_repeat
        # One dm_control environment per task: members borrow it to draw their initial states.
        self._reference = {task: load_task(task) for task in dict.fromkeys(tasks)}
        self._generators = LegacyGenerators(seeds)
        self._noise = ActionNoise(seeds, action_noise)
        self._build(domains == {"dog"}, threads)

    def _build(self, is_dog: bool, threads: int) -> None:
        from mujoco import mjtStage, mjtState
        from mujoco.batch import Batch

        from cvaml.envs.bodies import Body, Dog, Humanoid

        self._stage, self._sig = mjtStage.mjSTAGE_VEL.value, mjtState.mjSTATE_INTEGRATION.value
        models = [self._reference[task].physics.model.ptr for task in self.tasks]
        workers = max(min(threads, self.members), 1)  # more would wake up for nothing
        self._batch = Batch(models[0], self.members, workers, persistent=True)
        self._batch.set_models(models)  # the dog tasks' models differ in the floor's size
        reference = self._reference[self.tasks[0]]
        self._substeps = round(reference.control_timestep() / reference.physics.timestep())
        low, high = models[0].actuator_ctrlrange.T
        self._middle, self._half = (low + high) / 2, (high - low) / 2
        self._ctrl = self._batch.bind("ctrl")
        speeds = np.array([TASKS[task] for task in self.tasks])
        self._body: Body = (Dog if is_dog else Humanoid)(self._batch, models[0], speeds)
        self.action_size = len(low)
        self.observation_size = self._body.observe().shape[1]
        self._time = np.zeros(self.members, np.int64)
        self._obs = np.zeros((self.members, self.observation_size), np.float64)

    @property
    def obs(self) -> Float32[np.ndarray, "S o"]:
        """The current observations."""
        return self._obs.astype(np.float32)

    def reset(self) -> Float32[np.ndarray, "S o"]:
        """Starts a new episode in every member; returns the first observations."""
        for member in range(self.members):
            self._restart(member)
        return self.obs

    def reset_member(self, member: int) -> Float32[np.ndarray, "o"]:
        """Starts a new episode in one member; returns its first observation."""
        self._restart(member)
        return np.array(self._obs[member], np.float32)

    def step(self, actions: Shaped[np.ndarray, "S a"]) -> Step:
        """Takes one agent step with actions in [-1, 1] (clipped to it)."""
        before = self._obs
        reward, error = self.simulate(actions)
        final_obs = self._obs = np.where(error[:, None], before, self._body.observe())
        truncated = error | (self._time >= EPISODE_STEPS)
        if truncated.any():
            self._obs = final_obs.copy()
            for member in np.flatnonzero(truncated):
                self._restart(int(member))
        return Step(
            obs=self.obs,
            reward=reward.astype(np.float32),
            terminated=np.zeros(self.members, bool),
            truncated=truncated,
            final_obs=final_obs.astype(np.float32),
            physics_error=error,
        )

    def simulate(
        self, actions: Shaped[np.ndarray, "S a"]
    ) -> tuple[Float64[np.ndarray, "S"], Bool[np.ndarray, "S"]]:
        """The physics of one agent step, without observations and resets.

        Returns:
            The summed rewards of the control steps that went well, and who diverged.
        """
        self._ctrl[:] = self._middle + self._half * self._noise(actions)
        reward, error = np.zeros(self.members), np.zeros(self.members, bool)
        for _ in range(self.action_repeat):
            alive = ~error & (self._time < EPISODE_STEPS)
            error |= self._control_step(alive)
            alive &= ~error
            reward[alive] += self._body.reward()[alive]
            self._time += alive
        return reward, error

    def physics(self, actions: Shaped[np.ndarray, "S a"]) -> None:
        """Only the simulator's part of an agent step, to measure it; leaves `obs` behind."""
        self._ctrl[:] = self._middle + self._half * actions
        for _ in range(self.action_repeat):
            self._control_step(np.ones(self.members, bool))

    def _control_step(self, alive: Bool[np.ndarray, "S"]) -> Bool[np.ndarray, "S"]:
        """Steps the members of the mask; returns who diverged, by dm_control's criterion."""
        from mujoco.batch import SimulationError

        failed = np.zeros(self.members, bool)
        try:
            self._batch.step(alive, self._substeps, self._stage)
        except SimulationError as error:
            failed[error.ids] = True
        # The counters of a running episode are 0: any warning is the simulation's last word.
        warned: np.ndarray = self._batch.warning[:, :, 1].any(axis=1)
        return np.asarray(failed | warned)

    def _restart(self, member: int) -> None:
        """Draws an initial state by dm_control's own code, from the member's generator."""
        reference = self._reference[self.tasks[member]]
        self._generators.lend(member, reference.task.random)
        first = reference.reset()
        self._generators.take_back(member, reference.task.random)
        self._batch.reset([member], stage=0)  # also clears the warning counters
        self._batch.state[member] = reference.physics.get_state(self._sig)
        self._obs[member] = first.observation["observations"]
        self._time[member] = 0

    def state(self) -> State:
        """Everything needed to continue bit-identically after `restore`."""
        return {
            "simulator": self._batch.state.copy(),
            "obs": self._obs.copy(),
            "time": self._time.copy(),
            **self._generators.state(),
            **self._noise.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> Bool[np.ndarray, "S"]:
        """Continues from `state`; always possible here."""
        check_state(state, self.state())
        self._batch.reset(stage=0)
        self._batch.state[:] = state["simulator"]
        self._obs, self._time = state["obs"].copy(), state["time"].copy()
        self._generators.restore(state)
        self._noise.restore(state)
        return np.ones(self.members, bool)

    def close(self) -> None:
        """Lets go of dm_control; the simulators end with this object."""
        self._reference.clear()
