"""Noise that turns slowly: its distribution at every step, and how long it remembers."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agent_cases import keys, tiny
from scipy.stats import kstest

from cvaml.agent import population
from cvaml.agent.exploration import as_uniform, slow_noise
from cvaml.agent.state import Flat, Spec

STEPS, SEQUENCES = 40, 4000


def sequences(period: float) -> np.ndarray:
    """Noise of the first steps, `[STEPS, SEQUENCES]`."""
    draw = partial(slow_noise, jax.random.key(0), period=jnp.asarray(period), size=SEQUENCES)
    return np.asarray(jax.jit(jax.vmap(draw))(jnp.arange(STEPS)))


@pytest.mark.parametrize("period", [1.0, 4.0, 2.5])
def test_noise_is_standard_normal_at_every_step(period):
    noise = sequences(period)
    assert min(kstest(each, "norm").pvalue for each in noise) > 1e-4
    np.testing.assert_allclose(noise.std(axis=1), 1, atol=0.05)


def test_numbers_between_two_knots_mix_them_by_a_quarter_turn():
    noise = sequences(4.0)
    correlation = np.corrcoef(noise[:9])[0]
    # With the knot at step 0: cos of 0, 1/4, 1/2, 3/4 and 1 quarter turns, and nothing later.
    turns = np.cos(np.pi / 2 * np.array([0, 0.25, 0.5, 0.75, 1]))
    np.testing.assert_allclose(correlation, [*turns, 0, 0, 0, 0], atol=0.06)


def test_period_one_is_new_at_every_step():
    correlation = np.corrcoef(sequences(1.0)) - np.eye(STEPS)
    assert np.abs(correlation).max() < 0.08


def test_uniform_numbers_keep_the_order():
    normal = jnp.array([-30.0, -1.0, 0.0, 1.0, 30.0])
    # The normal distribution function at 1 is 0.841345.
    np.testing.assert_allclose(as_uniform(normal), [-1, -0.682689, 0, 0.682689, 1], atol=1e-6)
    assert (
        kstest(np.asarray(as_uniform(jnp.asarray(sequences(4.0)[2]))), "uniform", (-1, 2))[1] > 1e-4
    )


def test_members_explore_as_slowly_as_they_are_told():
    """Random actions and the noise on planned ones, of members that differ in their period."""
    config = tiny(planner__enabled="off", exploration_noise=0.1)
    each = keys(2)
    state = population.init_population(
        each, config, Spec(3, 2), {"exploration_period": [1.0, 100.0]}
    )
    flat, observation = Flat.of(state), np.zeros((2, 3), np.float32)

    def planned(step):
        return np.asarray(
            population.act(flat, observation, each, config, explore=True, step=step)[0]
        )

    def random(step):
        return np.asarray(population.random_actions(flat, each, step))

    for actions, loud in ((planned, 0.1), (random, 1.0)):
        quick, slow = np.abs(np.diff([actions(step) for step in range(20)], axis=0)).max((0, 2))
        assert quick > 0.5 * loud
        # A step turns by at most π/2 / 100, from one number near 0 to another: within 4 or so.
        assert 0 < slow < 0.1 * loud
