"""Settings that act over several steps: the planner's horizon, and the losses of m > 1."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agent_cases import filled, tiny
from test_objective import Identity

from cvaml.agent.networks import Actor, Dynamics, Networks, Prediction
from cvaml.agent.objective import objective, td_targets
from cvaml.agent.policy import act_member
from cvaml.agent.replay import Rows, sample_member, sequence_masks
from cvaml.agent.state import Spec, init_member, member_settings
from cvaml.agent.update import learn

SPEC = Spec(3, 2)


class Detour(Dynamics):
    """The action is the next state; pays -0.2 (a + 0.5)² - (z - 0.5)² and never ends.

    At once -0.5 pays best; one step later it is best to have gone to 0.5.
    """

    def __init__(self):
        for name in ("first", "second", "mean", "log_std", "outcome_hidden", "outcome"):
            object.__setattr__(self, name, None)
        self.norm, self.group, self.bounds = "identity", 1, (-6.0, 0.0)

    def __call__(self, z, action):
        reward = -0.2 * jnp.square(action + 0.5) - jnp.square(z - 0.5)
        zero = jnp.zeros_like(action)
        return Prediction(action, zero, reward[..., 0], jnp.array(100.0), zero)


class Still(Actor):
    """Always 0."""

    def __init__(self, actor):
        self.first, self.second, self.out = actor.first, actor.second, actor.out

    def __call__(self, z):
        return jnp.zeros_like(z)


# The second state's reward is discounted; the third state does not depend on the first action.
BEST = (0.99 * 0.5 - 0.2 * 0.5) / (0.99 + 0.2)


@pytest.mark.parametrize(("horizon", "best"), [(1, -0.5), (2, BEST), (3, BEST)])
def test_the_planner_looks_as_far_as_its_horizon(horizon, best):
    config = tiny(
        network__latent=1,
        network__latent_norm="identity",
        network__observation_norm="off",
        planner__horizon=horizon,
        planner__samples=256,
        planner__elites=16,
        planner__iterations=8,
    )
    settings = jax.tree.map(lambda x: x[0], member_settings(config, 1))
    state = init_member(jax.random.key(0), config, Spec(1, 1), settings)
    # Fresh critics say 0 everywhere, so the rewards up to the horizon decide alone.
    networks = Networks(Identity(), Detour(), state.networks.critics, Still(state.networks.actor))
    state = type(state)(networks, networks.critics, {}, state.scales, settings, state.step)
    action, _ = act_member(state.policy, jnp.zeros(1), jax.random.key(1), None, config)
    assert float(action[0]) == pytest.approx(best, abs=0.05)


@functools.cache
def updated(variant, **changed):
    """Networks and metrics after one whole update of one member on sequences of m + 1 states."""
    # A critic of one number compiles in half the time of a histogram.
    config = tiny(variant, network__critic_head="scalar", **changed)
    settings = jax.tree.map(lambda x: x[0], member_settings(config, 1))
    replay = jax.tree.map(lambda x: x[0], filled(SPEC, 1, 60))
    rows = sample_member(replay, jax.random.key(3), 32, config.sequence_length)
    state = init_member(jax.random.key(0), config, SPEC, settings)
    noisy = jax.tree.map(
        lambda x: x + 0.3 * jax.random.normal(jax.random.key(1), x.shape),
        (state.networks, state.target_critics),  # heads that start at 0 hide every effect
    )
    state = type(state)(*noisy, state.optimisers, state.scales, settings, state.step)
    quick = jax.jit(learn, static_argnums=3, compiler_options={"xla_backend_optimization_level": 0})
    state, metrics = quick(state, rows, jax.random.key(4), config)
    return state.networks, {name: float(value) for name, value in metrics.items()}


def largest_difference(one, other) -> float:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return max(float(jnp.max(jnp.abs(x - y))) for x, y in pairs)


@pytest.mark.slow  # three compilations
def test_one_step_has_nothing_to_choose():
    networks, metrics = updated("cvaml-1-0")
    for changed in ({"loss__multistep_aux": "mixture"}, {"loss__step_weights": "uniform"}):
        others, found = updated("cvaml-1-0", **changed)
        assert found == pytest.approx(metrics, rel=1e-4, abs=1e-6)
        assert largest_difference(networks, others) < 1e-5


def test_two_steps_mixture_is_below_the_bound():
    networks, bound = updated("cvaml-2-0")
    others, mixture = updated("cvaml-2-0", loss__multistep_aux="mixture")
    assert mixture["loss/aux"] < bound["loss/aux"] - 1e-3
    assert mixture["loss/vaml"] == pytest.approx(bound["loss/vaml"], rel=1e-4)
    assert largest_difference(networks.dynamics, others.dynamics) > 1e-4


def test_two_steps_last_and_uniform_weights_differ():
    networks, last = updated("cvaml-2-0")
    others, uniform = updated("cvaml-2-0", loss__step_weights="uniform")
    for name in ("loss/aux", "loss/vaml"):
        assert uniform[name] != pytest.approx(last[name], rel=0.01)
    assert uniform["loss/reward"] == pytest.approx(last["loss/reward"], rel=1e-4)
    assert largest_difference(networks.dynamics, others.dynamics) > 1e-4


def test_td_targets_bootstrap_where_the_episode_allows():
    """Worked by hand: rewards 1, 2, 3, values 10, 20, 30 of the states 1 to 3, discount 1/2."""
    wanted = {
        "goes on": 1 + 2 / 2 + 3 / 4 + 30 / 8,
        "truncated at state 2": 1 + 2 / 2 + 20 / 4,
        "truncated at state 1": 1 + 10 / 2,
        "terminates at state 3": 1 + 2 / 2 + 3 / 4,
        "terminates at state 2": 1 + 2 / 2,
        "terminates at state 1": 1,
    }
    terminated, final = np.zeros((6, 4), bool), np.zeros((6, 4), bool)
    final[1, 2] = final[2, 1] = True
    for row, step in ((3, 2), (4, 1), (5, 0)):
        terminated[row, step] = final[row, step + 1] = True
    reward = np.tile(np.float32([1, 2, 3, 0]), (6, 1))
    nothing = np.zeros((6, 4, 3)), np.zeros((6, 4, 2))
    rows = Rows(*(jnp.asarray(x) for x in (*nothing, reward, terminated, final)))
    values = jnp.tile(jnp.array([10.0, 20.0, 30.0]), (6, 1))
    found = jax.jit(lambda r, v: td_targets(r, sequence_masks(r), v, 0.5))(rows, values)
    np.testing.assert_allclose(found, list(wanted.values()))
    one = td_targets(rows, sequence_masks(rows), values[:, :1], 0.5)
    np.testing.assert_allclose(one, [6, 6, 6, 6, 6, 1])
    # Fewer sequences than rows: the critics' last rows are the model's.
    np.testing.assert_allclose(
        td_targets(rows, sequence_masks(rows), values[:2], 0.5), list(wanted.values())[:2]
    )


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_td_steps_sum_so_many_rewards(noise):
    """Fresh critics value everything at 0, so a target is the sum of its rewards."""
    config = tiny("td3", real_fraction=1.0, loss__td_steps=3, loss__target_noise=noise)
    assert config.sequence_length == 4
    settings = jax.tree.map(lambda x: x[0], member_settings(config, 1))
    state = init_member(jax.random.key(0), config, SPEC, settings)
    replay = filled(SPEC, 1, 40, episode=10, reward=lambda o, a: np.ones(len(a)))
    rows = sample_member(jax.tree.map(lambda x: x[0], replay), jax.random.key(0), 64, 4)
    quick = {"xla_backend_optimization_level": 0}
    run = jax.jit(
        lambda s: objective(s.networks, s, rows, jax.random.key(1), config)[1][0],
        compiler_options=quick,
    )
    metrics = run(state)
    exists = np.asarray(sequence_masks(rows).exists)
    steps = exists[:, 1:].sum(axis=1)[exists[:, 1]]
    assert set(steps) == {1, 2, 3}
    wanted = np.mean([sum(0.99**t for t in range(n)) for n in steps])
    assert metrics["target_mean"] == pytest.approx(wanted, rel=1e-4)
