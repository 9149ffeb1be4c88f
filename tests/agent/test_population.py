"""The population: positions, solo runs, devices, compilation, and the traps of learning."""

import subprocess
import sys
import textwrap

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agent_cases import filled, keys, tiny

from cvaml.agent import population
from cvaml.agent.config import preset
from cvaml.agent.config_text import override
from cvaml.agent.metrics import METRICS
from cvaml.agent.state import Spec, init_member, member_settings
from cvaml.agent.update import _step

SPEC = Spec(3, 2)
CONFIG = tiny()


@pytest.fixture(scope="module")
def replay():
    return filled(SPEC, 3, 40)


def trained(config, replay, which, updates, settings=None):
    """Members of the given seeds after some updates on the same data."""
    each = jax.vmap(jax.random.key)(jnp.asarray(which, jnp.uint32))
    state = population.init_population(each, config, SPEC, settings)
    for _ in range(updates):
        state, metrics = population.update(state, replay, each, config)
    return state, metrics


def member(tree, index):
    return jax.tree.map(lambda x: np.asarray(x[index]), tree)


def largest_difference(one, other) -> float:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return max(float(np.max(np.abs(np.asarray(x) - np.asarray(y)))) for x, y in pairs)


def test_a_member_is_the_same_at_any_position_and_unlike_the_others(replay):
    forward, _ = trained(CONFIG, replay, [5, 6, 7], 10)
    backward, _ = trained(CONFIG, replay, [7, 6, 5], 10)
    for seed in range(3):
        assert largest_difference(member(forward, seed), member(backward, 2 - seed)) == 0
    assert largest_difference(member(forward, 0).networks, member(forward, 1).networks) > 0.01


def test_a_solo_run_agrees_with_its_member_after_50_updates(replay):
    together, _ = trained(CONFIG, replay, [5, 6, 7], 50)
    alone, _ = trained(CONFIG, jax.tree.map(lambda x: x[:1], replay), [6], 50)
    assert largest_difference(member(together, 1).networks, member(alone, 0).networks) < 1e-5


def test_nothing_is_compiled_again_after_the_first_call(replay):
    each = keys(3)
    state = population.init_population(each, CONFIG, SPEC)
    observation = np.zeros((3, 3), np.float32)
    data = filled(SPEC, 3, 20)
    sizes = []
    for step in range(4):
        action, _ = population.act(state, observation, each, CONFIG, explore=True, step=step)
        no = np.zeros(3, bool)
        data = population.add(
            data, observation, np.asarray(action), np.zeros(3, np.float32), no, no, observation
        )
        state, _ = population.update(state, data, each, CONFIG)
        jitted = (population._act, population._add, population._update)
        sizes.append([function._cache_size() for function in jitted])
    assert sizes[1] == sizes[-1]


def test_metrics_are_in_the_table(replay):
    state, metrics = trained(CONFIG, replay, [1, 2, 3], 1)
    found = population.diagnose(state, replay, keys(3), CONFIG)
    _, info = population.act(state, np.zeros((3, 3), np.float32), keys(3), CONFIG, explore=True)
    for values in (metrics, found, info):
        assert values.keys() <= METRICS.keys()
        assert all(value.shape == (3,) for value in values.values())
    assert "vaml_error" in found
    assert all(np.isfinite(value).all() for value in (metrics | found | info).values())
    assert 0 < float(info["planner/entropy"][0]) < np.log(5)


def test_settings_are_data_of_each_member(replay):
    settings = {
        "learning_rate": [0.0, 1.0, 1.0],
        "aux": [1.0, 1.0, 0.5],
        "polyak": [0.01, 0.01, 1.0],
    }
    state, _ = trained(CONFIG, replay, [6, 6, 6], 5, settings)
    fresh, _ = trained(CONFIG, replay, [6, 6, 6], 1, {"learning_rate": [0.0] * 3})
    assert largest_difference(member(state, 0).networks, member(fresh, 0).networks) == 0
    assert largest_difference(member(state, 1).networks, member(fresh, 0).networks) > 0
    assert largest_difference(member(state, 1).networks, member(state, 2).networks) > 0
    for index, least, most in ((1, 1e-4, 1.0), (2, 0.0, 1e-6)):
        each = member(state, index)
        lag = largest_difference(each.target_critics, each.networks.critics)
        assert least <= lag <= most


def test_acting_explores_unless_told_and_planning_matters(replay):
    state, _ = trained(CONFIG, replay, [1, 2, 3], 30)
    observation = np.full((3, 3), 0.3, np.float32)
    bare = tiny(planner__enabled="off")

    def actions(config, explore, step=0):
        return np.asarray(
            population.act(state, observation, keys(3), config, explore=explore, step=step)[0]
        )

    greedy = actions(CONFIG, False)
    assert greedy.shape == (3, 2)
    assert np.abs(greedy).max() <= 1
    np.testing.assert_array_equal(greedy, actions(CONFIG, False))
    assert np.abs(greedy - actions(CONFIG, True)).max() > 0.01
    assert np.abs(actions(CONFIG, True) - actions(CONFIG, True, step=1)).max() > 0.01
    np.testing.assert_array_equal(actions(bare, False), actions(bare, False, step=1))
    assert np.abs(actions(bare, False) - greedy).max() > 0.01
    assert np.abs(actions(bare, False) - actions(bare, True)).max() > 0.01
    assert np.abs(actions(tiny(planner__horizon=3), False) - greedy).max() > 0.01
    state = eqx.tree_at(lambda s: s.settings.exploration_noise, state, jnp.full(3, 100.0))
    np.testing.assert_array_equal(greedy, actions(CONFIG, False))
    for config in (CONFIG, bare):
        assert np.abs(actions(config, True)).mean() > 0.9  # so loud that the bounds cut it


def near_zero(config, members, n_updates, calls):
    data = filled(SPEC, members, 40, reward=lambda o, a: 0.002 * a[:, 0])
    state = population.init_population(keys(members), config, SPEC)
    for _ in range(calls):
        state, metrics = population.update(state, data, keys(members), config, n_updates)
        assert float(jnp.max(jnp.abs(metrics["value"]))) < 1
        assert float(jnp.max(jnp.abs(metrics["target_max"]))) < 1
    # One of the two actions is paid for: its best value is at the bound, the other's is not.
    assert float(jnp.max(metrics["actor_saturated"])) <= 0.5


def test_values_stay_near_zero_while_rewards_are_tiny():
    near_zero(CONFIG, 3, 1, 100)


@pytest.mark.slow
@pytest.mark.parametrize("critic_head", ["hl_gauss", "scalar"])
def test_values_stay_near_zero_in_the_small_preset(critic_head):
    near_zero(override(preset("small"), {"network.critic_head": critic_head}), 2, 25, 4)


def test_the_actor_waits_for_its_turn():
    config = tiny(loss__actor_delay=2)
    state = init_member(jax.random.key(0), config, SPEC, member(member_settings(config, 1), 0))
    grads = jax.tree.map(jnp.ones_like, state.networks)
    first, _, _ = _step(state, grads, config)
    later = eqx.tree_at(lambda s: s.step, state, jnp.ones((), jnp.int32))
    second, kept, _ = _step(later, grads, config)
    assert largest_difference(first.actor, state.networks.actor) > 0
    assert largest_difference(second.actor, state.networks.actor) == 0
    assert largest_difference(kept["actor"], state.optimisers["actor"]) == 0
    assert largest_difference(second.encoder, state.networks.encoder) > 0


SHARDED = """
import jax, numpy as np
from agent_cases import filled, keys, tiny
from cvaml.agent import population
from cvaml.agent.state import Spec
assert len(jax.devices()) == 4
config, spec = tiny(), Spec(3, 2)
def run(place):
    each, replay = place(keys(4)), place(filled(spec, 4, 30))
    state = place(population.init_population(keys(4), config, spec))
    zeros = np.zeros((4, 3), np.float32)
    no = np.zeros(4, bool)
    for step in range(5):
        action, _ = population.act(state, zeros, each, config, explore=True, step=step)
        replay = population.add(replay, zeros, action, np.ones(4, np.float32), no, no, zeros)
        state, metrics = population.update(state, replay, each, config)
    return [np.asarray(x) for x in jax.tree.leaves((state.networks, action, metrics))], state
one, _ = run(lambda tree: tree)
four, state = run(population.shard)
assert len(jax.tree.leaves(state)[0].sharding.device_set) == 4
# Of numbers above 1 (gradient norms are in the thousands here) the relative difference counts.
print(max(float(np.max(np.abs(x - y) / np.maximum(np.abs(x), 1))) for x, y in zip(one, four)))
"""


def test_members_on_four_devices_are_as_on_one(tmp_path):
    import os
    from pathlib import Path

    here = Path(__file__).parent
    flags = "--xla_force_host_platform_device_count=4 --xla_backend_optimization_level=0"
    environment = os.environ | {
        "XLA_FLAGS": flags,
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": f"{here}:{os.environ.get('PYTHONPATH', '')}",
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SHARDED)],
        capture_output=True,
        text=True,
        timeout=500,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert float(done.stdout.split()[-1]) < 1e-4


def test_members_must_divide_over_devices():
    from cvaml.types import UserError

    with pytest.raises(UserError, match="do not divide"):
        population.shard(keys(3), jax.devices() * 2)
