"""Multi-step likelihoods against the exact density of a linear-Gaussian chain."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cvaml.agent.networks import Dynamics, Prediction
from cvaml.agent.rollout import auxiliary, continuation_losses, reward_errors, rollout

A, S = 0.8, 0.6


class Chain(Dynamics):
    """x' = A x + action + S ε, reward x; stands in for the networks."""

    slope: jax.Array

    def __init__(self, slope=A):
        self.slope = jnp.asarray(slope)
        for name in ("first", "second", "mean", "log_std", "outcome_hidden", "outcome"):
            setattr(self, name, None)
        self.norm, self.group, self.bounds = "identity", 1, (-6.0, 0.0)

    def __call__(self, z, action):
        mean = self.slope * jnp.broadcast_to(z, jnp.broadcast_shapes(z.shape, action.shape))
        mean = mean + jnp.broadcast_to(action, mean.shape)
        log_std = jnp.full(mean.shape, jnp.log(S))
        return Prediction(mean, log_std, mean[..., 0], mean[..., 0], log_std)


def chain_rollout(m, k, batch=1, stochastic=True, slope=A):
    start = jnp.full((batch, 1), 0.5)
    noise = jax.random.normal(jax.random.key(0), (m, k, batch, 1))
    return rollout(Chain(slope), start, jnp.zeros((batch, m, 1)), noise, stochastic)


def exact_nll(x, m):
    mean = A**m * 0.5
    variance = S**2 * sum(A ** (2 * i) for i in range(m))
    return 0.5 * (x - mean) ** 2 / variance + 0.5 * np.log(2 * np.pi * variance)


def bound(x, m):
    """E over the sampled predecessor of the last step's negative log-density."""
    mean = A**m * 0.5
    before = A**2 * S**2 * sum(A ** (2 * i) for i in range(m - 1))
    return 0.5 * ((x - mean) ** 2 + before) / S**2 + 0.5 * np.log(2 * np.pi * S**2)


def test_trajectories_have_the_exact_moments_and_are_independent():
    found = chain_rollout(3, 20_000).latents[:, 0, :, 0]
    for m in (1, 2, 3):
        variance = S**2 * sum(A ** (2 * i) for i in range(m))
        assert float(jnp.mean(found[:, m - 1])) == pytest.approx(A**m * 0.5, abs=0.02)
        assert float(jnp.var(found[:, m - 1])) == pytest.approx(variance, rel=0.04)


@pytest.mark.parametrize("mixture", [True, False])
def test_one_step_likelihood_is_exact(mixture):
    found = auxiliary(chain_rollout(1, 5), jnp.full((1, 1, 1), 1.3), True, mixture)
    assert float(found[0, 0]) == pytest.approx(exact_nll(1.3, 1), rel=1e-5)


@pytest.mark.parametrize("x", [0.0, 1.3, -2.0])
def test_multi_step_forms_against_the_exact_density(x):
    m = 3
    targets = jnp.zeros((1, m, 1)).at[0, -1, 0].set(x)
    samples = chain_rollout(m, 50_000)
    mixture = float(auxiliary(samples, targets, True, True)[0, -1])
    single = float(auxiliary(samples, targets, True, False)[0, -1])
    assert mixture == pytest.approx(exact_nll(x, m), abs=0.05)
    assert single == pytest.approx(bound(x, m), abs=0.03)
    assert single > exact_nll(x, m)


def test_few_samples_lie_between_the_density_and_the_bound():
    m, repeats = 3, 4000
    targets = jnp.full((repeats, m, 1), 1.0)
    found = auxiliary(chain_rollout(m, 4, batch=repeats), targets, True, True)
    assert exact_nll(1.0, m) < float(jnp.mean(found[:, -1])) < bound(1.0, m)


def test_gradients_reach_every_step_and_not_the_target():
    def loss(slope, x):
        targets = jnp.full((1, 2, 1), x)
        return auxiliary(chain_rollout(2, 8, slope=slope), targets, True, False)[0, -1]

    to_model, to_target = jax.grad(loss, argnums=(0, 1))(jnp.asarray(A), jnp.asarray(1.0))
    assert abs(float(to_model)) > 1e-3
    assert float(to_target) == 0


def test_deterministic_models_ignore_the_noise():
    found = chain_rollout(2, 3, stochastic=False)
    np.testing.assert_allclose(found.latents[:, 0, :, 0], np.tile([0.4, 0.32], (3, 1)), rtol=1e-6)
    error = auxiliary(found, jnp.ones((1, 2, 1)), False, False)
    np.testing.assert_allclose(error, [[0.36, 0.68**2]], rtol=1e-5)


def test_reward_errors_by_hand():
    found = chain_rollout(2, 3, stochastic=False)
    errors = reward_errors(found, jnp.array([[1.0, 0.0]]), jnp.asarray(2.0))
    np.testing.assert_allclose(errors, [[0.09, (0.32 / 2) ** 2]], rtol=1e-5)


def test_continuation_losses_by_hand():
    found = chain_rollout(2, 3, stochastic=False)
    losses = continuation_losses(found, jnp.array([[True, False]]))
    np.testing.assert_allclose(
        losses, [[np.log1p(np.exp(0.4)), np.log1p(np.exp(-0.32))]], rtol=1e-5
    )
