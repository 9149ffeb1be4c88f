import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from cvaml import (
    gaussian_entropy,
    gaussian_mixture_nll,
    gaussian_nll,
    hl_gauss_decode,
    hl_gauss_encode,
    reward_loss,
    squared_error,
)

MEAN = jnp.array([0.0, 1.0])
LOG_STD = jnp.log(jnp.array([1.0, 2.0]))
TARGET = jnp.array([1.0, 3.0])


def test_gaussian_nll_equals_scipy_and_its_gradient():
    expected = -stats.norm([0, 1], [1, 2]).logpdf([1, 3]).sum()
    np.testing.assert_allclose(jax.jit(gaussian_nll)(MEAN, LOG_STD, TARGET), expected, rtol=1e-6)
    gradients = jax.grad(gaussian_nll, argnums=(0, 1, 2))(MEAN, LOG_STD, TARGET)
    np.testing.assert_allclose(gradients[0], [-1.0, -0.5], rtol=1e-6)
    np.testing.assert_allclose(gradients[1], [1 - 1.0, 1 - 1.0], atol=1e-6)
    np.testing.assert_allclose(gradients[2], 0)


def test_mixture_nll():
    means, stds = np.array([[0.0, 1.0], [2.0, -1.0]]), np.array([[1.0, 2.0], [0.5, 1.0]])
    densities = stats.norm(means, stds).pdf(np.array(TARGET)).prod(axis=1)
    found = jax.jit(gaussian_mixture_nll)(
        jnp.array(means, jnp.float32), jnp.log(jnp.array(stds, jnp.float32)), TARGET
    )
    np.testing.assert_allclose(found, -np.log(densities.mean()), rtol=1e-5)
    single = gaussian_mixture_nll(MEAN[None], LOG_STD[None], TARGET)
    np.testing.assert_allclose(single, gaussian_nll(MEAN, LOG_STD, TARGET), rtol=1e-6)
    gradient = jax.grad(gaussian_mixture_nll, argnums=2)(MEAN[None], LOG_STD[None], TARGET)
    np.testing.assert_allclose(gradient, 0)


def test_entropy_equals_scipy():
    expected = stats.norm(0, [1, 2]).entropy().sum()
    np.testing.assert_allclose(gaussian_entropy(LOG_STD), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(gaussian_entropy)(LOG_STD), 1.0)


def test_squared_error_and_reward():
    np.testing.assert_allclose(squared_error(MEAN, TARGET), 5.0)
    gradients = jax.grad(squared_error, argnums=(0, 1))(MEAN, TARGET)
    np.testing.assert_allclose(gradients[0], [-2.0, -4.0])
    np.testing.assert_allclose(gradients[1], 0)
    np.testing.assert_allclose(reward_loss(2.0, 5.0), 9.0)
    np.testing.assert_allclose(jax.grad(reward_loss, argnums=(0, 1))(2.0, 5.0), [-6.0, 0.0])
    np.testing.assert_allclose(jax.vmap(reward_loss)(MEAN, TARGET), [1.0, 4.0])


EDGES = jnp.linspace(-10.5, 10.5, 22)  # 21 bins of width 1, centred on the integers


@pytest.mark.parametrize("value", [0.0, 0.3, -4.75, 7.5])
def test_hl_gauss_round_trip(value):
    masses = jax.jit(hl_gauss_encode)(value, EDGES, 0.75)
    np.testing.assert_allclose(masses.sum(), 1.0, rtol=1e-6)
    np.testing.assert_allclose(hl_gauss_decode(masses, EDGES), value, atol=1e-3)


def test_hl_gauss_masses_are_normal_probabilities():
    expected = np.diff(stats.norm(0.3, 0.75).cdf(np.array(EDGES)))
    np.testing.assert_allclose(hl_gauss_encode(0.3, EDGES, 0.75), expected, atol=1e-6)


def test_hl_gauss_moves_outsiders_to_the_edge():
    np.testing.assert_allclose(
        hl_gauss_encode(1e6, EDGES, 0.75), hl_gauss_encode(10.5, EDGES, 0.75)
    )


def test_hl_gauss_decode_is_linear():
    p, q = hl_gauss_encode(2.0, EDGES, 0.75), hl_gauss_encode(-3.0, EDGES, 0.75)
    mixed = hl_gauss_decode(0.25 * p + 0.75 * q, EDGES)
    np.testing.assert_allclose(mixed, 0.25 * 2 - 0.75 * 3, atol=1e-3)
    np.testing.assert_allclose(jax.grad(hl_gauss_decode)(p, EDGES), np.arange(-10, 11), atol=1e-5)


def test_shapes_are_checked(unchecked):
    with pytest.raises(ValueError, match="log_std must have length 2, got 1"):
        gaussian_nll(MEAN, LOG_STD[:1], TARGET)
    with pytest.raises(ValueError, match="target must have length 2, got 1"):
        squared_error(MEAN, TARGET[:1])
    with pytest.raises(ValueError, match="edges must have length 3, got 22"):
        hl_gauss_decode(MEAN, EDGES)
    with pytest.raises(ValueError, match="means must have 2 dimension"):
        gaussian_mixture_nll(MEAN, LOG_STD, TARGET)
