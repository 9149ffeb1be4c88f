"""The state of a training run and what one agent step does to it."""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from cvaml.agent import population
from cvaml.agent import replay as replays
from cvaml.agent.snapshot import new_rows, with_rows
from cvaml.agent.state import AgentState, Flat, Spec
from cvaml.agent.sums import Sums, first_bad, means
from cvaml.agent.train_config import TrainConfig
from cvaml.envs import Step, VectorEnv
from cvaml.runs.arrays import host_copy, restore_like
from cvaml.runs.checkpoints import Restored, Rows

ROWS_PER_END = 100
"""Replay has a row to spare for every so many steps, since an episode's end takes one."""
TIMED_EVERY = 50
"""Agent steps between those whose parts are timed one after the other, which needs waiting."""


class Keys(NamedTuple):
    """Keys of the members by purpose, [S] each; functions of the members' seeds alone."""

    init: Key[Array, " S"]
    act: Key[Array, " S"]
    update: Key[Array, " S"]
    diagnose: Key[Array, " S"]
    evaluate: Key[Array, " S"]


def member_keys(seeds: tuple[int, ...]) -> Keys:
    """The keys of members with these seeds."""
    each = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))
    fold = jax.vmap(jax.random.fold_in, in_axes=(0, None))
    return Keys(*(fold(each, purpose) for purpose in range(len(Keys._fields))))


class Trainer:
    """Acts, steps the environments, stores and learns.

    The update on the data before is queued right behind the planning of an action, and runs while
    the environments step: starting it takes milliseconds on an accelerator, in which the host
    would otherwise wait for the action.
    """

    def __init__(self, config: TrainConfig, env: VectorEnv) -> None:
        """A population before its first step."""
        self.config, self.env = config, env
        self.spec = Spec(env.observation_size, env.action_size)
        members = len(config.tasks)
        devices = _devices(members)
        steps = min(config.replay_steps or config.agent_steps, config.agent_steps)
        capacity = max(
            population.replay_rows(steps, ROWS_PER_END), config.agent.sequence_length + 2
        )
        keys = member_keys(config.seeds)
        state = population.init_population(
            keys.init, config.agent, self.spec, config.member_settings
        )
        # Numbers that came out of literals are typed weakly, which would compile all of it twice.
        state = jax.tree.map(lambda x: jax.lax.convert_element_type(x, x.dtype), state)
        replay = population.init_replay(self.spec, members, capacity, devices=len(devices))
        # Placed for good: arrays that wander between "anywhere" and "here" compile all of it twice.
        state, replay, keys = (
            population.shard(x, devices) if len(devices) > 1 else jax.device_put(x, devices[0])
            for x in (state, replay, keys)
        )
        self._state, self.replay, self.keys = Flat.of(state), replay, keys
        self.sums = self._no_sums()
        self.seconds = {"physics": 0.0, "planning": 0.0, "update": 0.0}
        self.step_count = self.updates = 0
        self._rows = np.zeros(members, np.int64)
        self._rows_stored = np.zeros(members, np.int64)
        self.counters: dict[str, np.ndarray] = {
            name: np.zeros(members)
            for name in ("return", "returns", "episodes", "physics_errors", "restarts")
        }
        # The newest step, as the replay takes it; nothing before the first one.
        width = 2 * self.spec.observation_size + self.spec.action_size + 3
        self._ends = replays.end_columns(*self.spec)
        self._pending = np.zeros((members, width), np.float32)
        self._obs = env.obs

    @property
    def state(self) -> AgentState:
        """Of the population."""
        found: AgentState = self._state.tree
        return found

    @property
    def learns(self) -> bool:
        """Whether the random phase is over and the replay holds a whole sequence."""
        agent = self.config.agent
        return self.step_count >= max(agent.random_steps, agent.sequence_length)

    @property
    def last_action(self) -> np.ndarray:
        """The actions of the newest step, [S, a]."""
        first = self.spec.observation_size
        return self._pending[:, first : first + self.spec.action_size]

    @property
    def episode_ended(self) -> bool:
        """Whether the newest step ended any member's episode."""
        return bool((self._pending[:, self._ends] > 0).any())

    def advance(self) -> None:
        """One agent step of all members."""
        # The first update is mostly compilation, which would drown all later ones.
        timed = self.updates > 0 and self.step_count % TIMED_EVERY == 0
        start = self._now(timed)
        step, keys, planned = self.step_count, self.keys.act, None
        if self.learns:
            agent = self.config.agent
            acting, planned = population.act(
                self._state, self._obs, keys, agent, explore=True, step=step
            )
        else:
            acting = population.random_actions(self._state, keys, step)
        acting.copy_to_host_async()
        acted = self._now(timed, acting)
        self.learn(planned)
        learned = self._now(timed)
        action = np.asarray(acting)
        outcome = self.env.step(action)
        if timed:
            self.seconds["planning"] += acted - start
            self.seconds["update"] += learned - acted
            self.seconds["physics"] += time.perf_counter() - learned
        self._pending = self._packed(action, outcome)
        self._count(outcome)
        self._obs = outcome.obs
        self.step_count += 1

    def read_sums(self) -> dict[str, np.ndarray]:
        """The means of the metrics since the last call, [S] each; starts the next block."""
        sums, self.sums = jax.device_get(self.sums), self._no_sums()
        counters = self.counters
        episodes = counters["episodes"]
        with np.errstate(invalid="ignore", divide="ignore"):
            returns = counters["returns"] / episodes  # NaN where no episode ended
        counters["returns"], counters["episodes"] = np.zeros_like(returns), np.zeros_like(returns)
        found = means(sums) | {"train_return": returns}
        if self.updates:
            keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(
                self.keys.diagnose, self.step_count
            )
            costly = population.diagnose(self.state, self.replay, keys, self.config.agent)
            found |= jax.device_get(costly)
        totals = {name: counters[name] for name in ("physics_errors", "restarts")}
        return found | {name: np.array(total) for name, total in totals.items()}

    def problem(self) -> str:
        """Which member's which loss was not finite and when; empty if all were."""
        found = first_bad(jax.device_get(self.sums))
        if found is None:
            return ""
        update, member, name = found
        return (
            f"{name} of member {member} ({self.env.tasks[member]}, seed "
            f"{self.config.seeds[member]}) is not finite at update {update}, agent step "
            f"{self.step_count}"
        )

    def snapshot(self) -> tuple[dict[str, np.ndarray], dict[str, Any], Rows | None]:
        """Copies of all of it: arrays, plain values, the replay's rows since the last snapshot."""
        arrays = host_copy(self._tree())
        arrays |= _prefixed("env/", self.env.state()) | _prefixed("counter/", self.counters)
        meta = {
            "spec": list(self.spec),
            "agent_step": self.step_count,
            "updates": self.updates,
            "seconds": self.seconds,
            "rows": self._rows.tolist(),
        }
        rows = new_rows(self.replay, self._rows_stored, self._rows)
        self._rows_stored = self._rows.copy()
        return arrays, meta, rows

    def restore(self, found: Restored) -> None:
        """Goes on where a snapshot was taken."""
        restored = restore_like(self._tree(), found.arrays)
        self._state, self.keys = Flat.of(restored["state"]), restored["keys"]
        counters = dict(zip(("current_index", "is_full"), restored["replay"], strict=True))
        self.replay = with_rows(self.replay.replace(**counters), found.rows)
        self.counters = _unprefixed("counter/", found.arrays)
        self.sums, self._pending = restored["sums"], restored["pending"]
        meta = found.meta
        self.step_count, self.updates = meta["agent_step"], meta["updates"]
        self.seconds = meta["seconds"]
        self._rows = np.array(meta["rows"], np.int64)
        self._rows_stored = self._rows.copy()
        lost = ~self.env.restore(_unprefixed("env/", found.arrays))
        if lost.any():
            # Their running episodes end with the step that is still to be stored.
            self._pending = self._pending.copy()
            self._pending[lost, self._ends.stop - 1] = 1.0
            self.counters["return"][lost] = 0
            self.counters["restarts"] += lost
        self._obs = self.env.obs

    def _tree(self) -> dict[str, Any]:
        """What has a fixed shape; the replay's rows go their own way."""
        return {
            "state": self.state,
            "keys": self.keys,
            "replay": (self.replay.current_index, self.replay.is_full),
            "sums": self.sums,
            "pending": self._pending,
        }

    def learn(self, planned: population.Metrics | None) -> None:
        """Stores the step before, then updates on what is stored, without waiting for either."""
        agent, step = self.config.agent, self._pending
        if planned is not None:
            self._state, self.replay, self.sums = population.add_and_update(
                self._state,
                self.replay,
                self.sums,
                step,
                planned,
                self.keys.update,
                agent,
                agent.updates_per_step,
            )
            self.updates += agent.updates_per_step
        elif self.step_count:
            self.replay = population.add_packed(self.replay, step)
        if self.step_count:
            self._rows += 1 + (step[:, self._ends] > 0).any(axis=1)

    def _packed(self, action: np.ndarray, outcome: Step) -> np.ndarray:
        ends = outcome.terminated, outcome.truncated
        step = replays.packed(self._obs, action, outcome.reward, *ends, outcome.final_obs)
        return np.asarray(step)

    def _no_sums(self) -> Sums:
        """Empty sums, where the members are."""
        empty: Sums = jax.device_put(Sums.start(len(self.config.tasks)), self.keys.init.sharding)
        return empty

    def _count(self, outcome: Step) -> None:
        ended = outcome.terminated | outcome.truncated
        counters = self.counters
        counters["return"] = counters["return"] + outcome.reward
        counters["returns"] = counters["returns"] + np.where(ended, counters["return"], 0)
        counters["episodes"] = counters["episodes"] + ended
        counters["return"] = np.where(ended, 0, counters["return"])
        counters["physics_errors"] = counters["physics_errors"] + outcome.physics_error

    def _now(self, settle: bool, acting: Array | None = None) -> float:
        """The time; where parts are told apart, once nothing is under way any more."""
        if settle:
            jax.block_until_ready((self._state, acting))
        return time.perf_counter()


def _devices(members: int) -> list[jax.Device]:
    """As many local devices as divide the members evenly."""
    devices: list[jax.Device] = jax.local_devices()
    count = max(n for n in range(1, len(devices) + 1) if members % n == 0)
    return devices[:count]


def _prefixed(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {prefix + name: np.asarray(value) for name, value in arrays.items()}


def _unprefixed(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    found = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
    return {name: np.array(value) for name, value in found.items()}
