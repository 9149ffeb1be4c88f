import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cvaml.agent.config import PlannerConfig
from cvaml.agent.planner import elite_weights, plan, score

SMALL = PlannerConfig(iterations=6, samples=128, elites=16)


def step(state, action):
    """A point that moves by the action and is paid for nothing on the way."""
    return state + 0.5 * action, jnp.zeros(())


def value_towards(goal, scale=1.0):
    return lambda state: -scale * jnp.sum(jnp.square(state - goal))


def planned(goal, horizon=1, scale=1.0, seed=0, config=SMALL):
    start = jnp.zeros((horizon, 2))
    return plan(
        jax.random.key(seed), jnp.zeros(2), start, step, value_towards(goal, scale), 0.99, config
    )


def test_score_adds_discounted_rewards_and_the_last_value():
    def paying(state, action):
        return state + 1, action[0]

    actions = jnp.array([[1.0], [2.0]])
    found = score(jnp.zeros(()), actions, paying, lambda state: 10 * state, 0.5)
    assert float(found) == pytest.approx(1 + 0.5 * 2 + 0.25 * 20)


def test_finds_the_best_action():
    found = jax.jit(planned)(jnp.array([0.3, -0.2]))
    np.testing.assert_allclose(found.mean[0], [0.6, -0.4], atol=0.05)
    assert float(found.gain) > 0


def test_a_longer_horizon_reaches_further():
    goal = jnp.array([0.9, -0.9])
    fast = jax.jit(planned, static_argnums=1)
    ends = [0.5 * jnp.sum(fast(goal, horizon).mean, axis=0) for horizon in (1, 2)]
    errors = [float(jnp.max(jnp.abs(end - goal))) for end in ends]
    assert errors[0] == pytest.approx(0.4, abs=0.02)
    assert errors[1] < 0.2


def test_the_temperature_acts_at_any_magnitude_of_the_values():
    goal = jnp.array([0.3, -0.2])
    fast = jax.jit(planned, static_argnums=1)
    found = [fast(goal, 1, scale) for scale in (1e-4, 1.0, 1e4)]
    for other in found[1:]:
        np.testing.assert_allclose(other.mean, found[0].mean, atol=1e-3)
        assert float(other.entropy) == pytest.approx(float(found[0].entropy), abs=0.02)
    assert 0.5 < float(found[0].entropy) < np.log(16) - 0.1


def test_a_hot_temperature_gives_equal_weights_a_cold_one_the_best():
    scores = jnp.arange(20.0)
    hot, _ = elite_weights(scores, 4, 1e6)
    np.testing.assert_allclose(hot, [0] * 16 + [0.25] * 4, atol=1e-4)
    cold, spread = elite_weights(scores, 4, 1e-2)
    np.testing.assert_allclose(cold, [0] * 19 + [1], atol=1e-4)
    assert float(spread) == pytest.approx(np.std([16, 17, 18, 19]))


def test_equal_scores_and_huge_offsets_stay_finite():
    for scores in (jnp.zeros(10), jnp.full(10, 1e6)):
        weights, _ = elite_weights(scores, 4, 0.5)
        np.testing.assert_allclose(weights, np.full(10, 0.1), rtol=1e-5)


def test_the_start_stays_a_candidate():
    cliff = lambda state: jnp.where(jnp.all(state == 0), 1.0, 0.0)  # noqa: E731
    config = PlannerConfig(iterations=3, samples=32, elites=4, temperature=0.05)
    fast = jax.jit(
        lambda key: plan(key, jnp.zeros(2), jnp.zeros((1, 2)), step, cliff, 0.99, config)
    )
    found = fast(jax.random.key(0))
    np.testing.assert_allclose(found.mean, np.zeros((1, 2)), atol=1e-3)
