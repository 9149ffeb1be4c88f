"""S members as one program: the only file that knows the member axis.

Every function is one jitted call for all members. Arrays of a population carry the members on
their first axis; `shard` spreads them over devices, and each device then runs its own members
without communication.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, Key

from cvaml.agent import replay as replays
from cvaml.agent.config import AgentConfig
from cvaml.agent.exploration import as_uniform, slow_noise
from cvaml.agent.metrics import diagnose_member
from cvaml.agent.policy import act_member
from cvaml.agent.replay import Replay
from cvaml.agent.state import (
    AgentState,
    Flat,
    Policy,
    Spec,
    flat_policy,
    init_member,
    member_settings,
)
from cvaml.agent.sums import Sums, add_metrics
from cvaml.agent.update import update_member
from cvaml.types import UserError

AXIS = "members"
Keys = Key[Array, " S"]
Metrics = dict[str, Float[Array, " S"]]


def init_population(
    keys: Keys,
    config: AgentConfig,
    spec: Spec,
    settings: Mapping[str, Sequence[float]] | None = None,
) -> AgentState:
    """Fresh members.

    Args:
        keys: one per member, `[S]`; a member depends on its own key only.
        config: shared by all members.
        spec: sizes of observation and action.
        settings: scalars that differ between members, see `MemberSettings`.

    Returns:
        The states with a leading member axis.
    """
    each = member_settings(config, len(keys), settings)
    state: AgentState = _init(keys, each, config, spec)
    return state


def act(
    state: AgentState | Flat[AgentState],
    observation: Float[Array, "S o"] | Float[np.ndarray, "S o"],
    keys: Keys,
    config: AgentConfig,
    *,
    explore: bool,
    step: int = 0,
) -> tuple[Float[Array, "S a"], Metrics]:
    """Actions of all members, planning included.

    Args:
        state: of the population; flat, it is cheaper to pass on.
        observation: one per member.
        keys: one per member; may stay the same if `step` changes.
        config: shared.
        explore: False is greedy, for evaluation.
        step: folded into the keys.

    Returns:
        Actions in [-1, 1] and the planner's statistics, one number per member.
    """
    policy = flat_policy(state if isinstance(state, Flat) else Flat.of(state))
    inputs = (policy, observation, keys, np.int32(step))
    found: tuple[Array, Metrics] = _act(*inputs, config, explore, _mesh(policy.leaves[0]))
    return found


def random_actions(state: Flat[AgentState], keys: Keys, step: int) -> Float[Array, "S a"]:
    """Actions uniform in [-1, 1] that change as slowly as the members' exploration noise."""
    found: Float[Array, "S a"] = _random_actions(flat_policy(state), keys, np.int32(step))
    return found


def update(
    state: AgentState, replay: Replay, keys: Keys, config: AgentConfig, n_updates: int = 1
) -> tuple[AgentState, Metrics]:
    """Gradient steps of all members; the state's buffers are donated.

    Args:
        state: of the population; not usable afterwards.
        replay: read only; must hold at least `config.sequence_length` rows per member.
        keys: one per member; may stay the same, the states' step counts are folded in.
        config: shared.
        n_updates: gradient steps in this call.

    Returns:
        The new state, and metrics averaged over the updates, one number per member.
    """
    mesh = _mesh(state.step)
    new: tuple[AgentState, Metrics] = _update(state, replay, keys, config, n_updates, mesh)
    return new


def diagnose(state: AgentState, replay: Replay, keys: Keys, config: AgentConfig) -> Metrics:
    """The costly metrics (`vaml_error`, entropy and the like), one number per member."""
    found: Metrics = _diagnose(state, replay, keys, config, _mesh(state.step))
    return found


def init_replay(spec: Spec, members: int, rows: int, *, devices: int = 1) -> Replay:
    """An empty replay per member, if it fits.

    Args:
        spec: sizes of observation and action.
        members: S.
        rows: rows per member; see `replay_rows`.
        devices: over how many devices it will be spread; CPU devices share one memory.

    Returns:
        The replays with a leading member axis.

    Raises:
        UserError: it needs more than the free memory.
    """
    apart = 1 if jax.default_backend() == "cpu" else devices
    needed, free = replay_bytes(spec, members, rows) // apart, free_bytes()
    if free is not None and needed > free:
        raise UserError(
            f"the replay of {members} members x {rows} rows needs {needed / 2**30:.2f} GiB, "
            f"{free / 2**30:.2f} GiB are free; use fewer members or a smaller capacity"
        )
    return _init_replay(spec, members, rows)


def replay_rows(steps: int, episode_steps: int) -> int:
    """Rows that hold all of `steps` agent steps: one more for every episode, and the newest."""
    return steps + -(-steps // max(episode_steps, 1)) + 1


def replay_bytes(spec: Spec, members: int, rows: int) -> int:
    """Bytes `init_replay` allocates."""
    counters = 4 + 1
    return members * (rows * replays.row_bytes(spec) + counters)


def free_bytes() -> int | None:
    """Free memory of the device, or of the machine if the device is the CPU; None if unknown."""
    device = jax.local_devices()[0]
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"]) - int(stats.get("bytes_in_use", 0))
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    available = next((line for line in lines if line.startswith("MemAvailable")), None)
    return int(available.split()[1]) * 1024 if available else None


def add(
    replay: Replay,
    observation: Float[Array, "S o"] | Float[np.ndarray, "S o"],
    action: Float[Array, "S a"] | Float[np.ndarray, "S a"],
    reward: Float[Array, " S"] | Float[np.ndarray, " S"],
    terminated: Bool[Array, " S"] | Bool[np.ndarray, " S"],
    truncated: Bool[Array, " S"] | Bool[np.ndarray, " S"],
    successor: Float[Array, "S o"] | Float[np.ndarray, "S o"],
) -> Replay:
    """Stores one transition of every member; the replay's buffers are donated.

    Args:
        replay: of the population; not usable afterwards.
        observation: before the action.
        action: taken.
        reward: received.
        terminated: ended for good.
        truncated: cut off.
        successor: the observation after the action and before any reset (`final_obs` where an
            episode ended).

    Returns:
        The replay.
    """
    step = replays.packed(observation, action, reward, terminated, truncated, successor)
    return add_packed(replay, step)


def add_packed(replay: Replay, step: Float[Array, "S p"] | Float[np.ndarray, "S p"]) -> Replay:
    """Stores one step of every member, given as `replay.packed` made it."""
    return _add(replay, step, _mesh(replay.current_index))


def add_and_update(
    state: Flat[AgentState],
    replay: Replay,
    sums: Sums,
    step: Float[Array, "S p"] | Float[np.ndarray, "S p"],
    planned: Metrics,
    keys: Keys,
    config: AgentConfig,
    n_updates: int = 1,
) -> tuple[Flat[AgentState], Replay, Sums]:
    """Stores a step, updates, and sums the metrics, as one program with one copy to the device.

    Args:
        state: of the population; not usable afterwards.
        replay: of the population; not usable afterwards.
        sums: of the metrics so far; not usable afterwards.
        step: as `replay.packed` made it.
        planned: what `act` said about the planner.
        keys: one per member; may stay the same.
        config: shared.
        n_updates: gradient steps in this call.

    Returns:
        State, replay and sums afterwards.
    """
    inputs = (state, replay, sums, step, planned, keys)
    found: tuple[Flat[AgentState], Replay, Sums] = _add_and_update(
        *inputs, config, n_updates, _mesh(state.leaves[0])
    )
    return found


def shard(tree: Any, devices: Sequence[jax.Device] | None = None) -> Any:
    """Spreads a population's arrays over devices, members in equal blocks.

    Args:
        tree: state, replay or keys with a leading member axis.
        devices: all local ones if not given.

    Returns:
        The same arrays, placed.

    Raises:
        UserError: the members do not divide evenly.
    """
    devices = list(jax.local_devices() if devices is None else devices)
    members = jax.tree.leaves(tree)[0].shape[0]
    if members % len(devices):
        raise UserError(f"{members} members do not divide over {len(devices)} devices")
    sharding = NamedSharding(Mesh(np.array(devices), (AXIS,)), PartitionSpec(AXIS))
    return jax.device_put(tree, sharding)


def _mesh(leaf: Array) -> Mesh | None:
    """The mesh a population is spread over, read off one of its arrays; None on a single device."""
    if isinstance(leaf, jax.core.Tracer):  # inside another trace, which places its own arrays
        return None
    sharding = leaf.sharding
    mesh = sharding.mesh if isinstance(sharding, NamedSharding) else None
    return mesh if isinstance(mesh, Mesh) and mesh.size > 1 else None


def _over_members(function: Callable[..., Any], mesh: Mesh | None) -> Callable[..., Any]:
    """The function of one member for all of them: `vmap`, on every device of the mesh."""
    mapped = jax.vmap(function)
    if mesh is None:
        return mapped
    members = PartitionSpec(AXIS)
    return jax.shard_map(mapped, mesh=mesh, in_specs=members, out_specs=members, check_vma=False)


@partial(jax.jit, static_argnames=("config", "spec"))
def _init(keys: Keys, settings: Any, config: AgentConfig, spec: Spec) -> AgentState:
    return jax.vmap(lambda key, each: init_member(key, config, spec, each))(keys, settings)


@partial(jax.jit, static_argnames=("spec", "members", "rows"))
def _init_replay(spec: Spec, members: int, rows: int) -> Replay:
    empty = jax.eval_shape(lambda: replays.init_replay_member(spec, rows))
    return jax.tree.map(lambda x: jnp.zeros((members, *x.shape), x.dtype), empty)


@partial(jax.jit, static_argnames=("config", "explore", "mesh"))
def _act(
    policy: Flat[Policy],
    observation: Array,
    keys: Keys,
    step: Array,
    config: AgentConfig,
    explore: bool,
    mesh: Mesh | None,
) -> tuple[Array, Metrics]:
    def member(
        policy: Policy, observation: Array, key: Array, step: Array
    ) -> tuple[Array, Mapping[str, Array]]:
        plan_key, noise_key = jax.random.split(key)
        noise = None
        if explore:
            noise = slow_noise(noise_key, step, policy.exploration_period, policy.action_size)
        return act_member(policy, observation, jax.random.fold_in(plan_key, step), noise, config)

    steps = jnp.broadcast_to(step, keys.shape)
    found: tuple[Array, Metrics] = _over_members(member, mesh)(
        policy.tree, observation, keys, steps
    )
    return found


@jax.jit
def _random_actions(policy: Flat[Policy], keys: Keys, step: Array) -> Float[Array, "S a"]:
    def member(policy: Policy, key: Array) -> Array:
        return as_uniform(slow_noise(key, step, policy.exploration_period, policy.action_size))

    return jax.vmap(member)(policy.tree, keys)


@partial(jax.jit, static_argnames=("config", "n_updates", "mesh"), donate_argnames="state")
def _update(
    state: AgentState,
    replay: Replay,
    keys: Keys,
    config: AgentConfig,
    n_updates: int,
    mesh: Mesh | None,
) -> tuple[AgentState, Metrics]:
    one = partial(update_member, config=config, n_updates=n_updates)
    new: tuple[AgentState, Metrics] = _over_members(one, mesh)(state, replay, keys)
    return new


@partial(jax.jit, static_argnames=("config", "mesh"))
def _diagnose(
    state: AgentState, replay: Replay, keys: Keys, config: AgentConfig, mesh: Mesh | None
) -> Metrics:
    one = partial(diagnose_member, config=config)
    found: Metrics = _over_members(one, mesh)(state, replay, keys)
    return found


@partial(jax.jit, static_argnames="mesh", donate_argnames="replay")
def _add(replay: Replay, step: Array, mesh: Mesh | None) -> Replay:
    return _over_members(replays.add_packed_member, mesh)(replay, step)


@partial(
    jax.jit,
    static_argnames=("config", "n_updates", "mesh"),
    donate_argnames=("state", "replay", "sums"),
)
def _add_and_update(
    state: Flat[AgentState],
    replay: Replay,
    sums: Sums,
    step: Array,
    planned: Metrics,
    keys: Keys,
    config: AgentConfig,
    n_updates: int,
    mesh: Mesh | None,
) -> tuple[Flat[AgentState], Replay, Sums]:
    def member(
        state: AgentState,
        replay: Replay,
        sums: Sums,
        step: Array,
        planned: dict[str, Float[Array, ""]],
        key: Array,
    ) -> tuple[AgentState, Replay, Sums]:
        replay = replays.add_packed_member(replay, step)
        state, metrics = update_member(state, replay, key, config, n_updates)
        return state, replay, add_metrics(sums, metrics | planned, state.step)

    new, replay, sums = _over_members(member, mesh)(state.tree, replay, sums, step, planned, keys)
    return Flat.of(new), replay, sums
