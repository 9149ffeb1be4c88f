import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvaml import cvaml_loss, variance_correction, variance_weight

V = jnp.array([1.0, 3.0, 8.0])  # mean 4, squared deviations 9 + 1 + 16 = 26


@pytest.mark.parametrize(
    ("correction", "value", "gradient"),
    [
        ("unbiased", 26 / 6, np.array([-3.0, -1.0, 4.0]) * 2 / 6),
        ("printed", 26 / 3, np.array([-3.0, -1.0, 4.0]) * 2 / 3),
        ("none", 0.0, np.zeros(3)),
    ],
)
def test_hand_worked_value_and_gradient(correction, value, gradient):
    function = jax.jit(jax.value_and_grad(lambda v: variance_correction(v, correction)))
    found, slope = function(V)
    np.testing.assert_allclose(found, value, rtol=1e-6)
    np.testing.assert_allclose(slope, gradient, rtol=1e-6, atol=1e-6)
    batch = jax.vmap(lambda v: variance_correction(v, correction))(jnp.stack([V, 2 * V]))
    np.testing.assert_allclose(batch, [value, 4 * value], rtol=1e-6)


def u_statistic(v, y):
    """The second, equal form of CVAML: the mean over ordered pairs of distinct samples."""
    pairs = itertools.permutations(v, 2)
    return sum((a - y) * (b - y) for a, b in pairs) / (len(v) * (len(v) - 1))


@settings(max_examples=60, deadline=None)
@given(
    v=st.lists(st.floats(-100, 100), min_size=2, max_size=16),
    y=st.floats(-100, 100),
)
def test_cvaml_is_a_u_statistic(v, y):
    with jax.enable_x64(True):
        found = cvaml_loss(jnp.array(v), y)
    np.testing.assert_allclose(found, u_statistic(v, y), rtol=1e-9, atol=1e-8)


@settings(max_examples=30, deadline=None)
@given(k=st.integers(2, 16), seed=st.integers(0, 2**31))
def test_unbiased_over_all_draws_of_a_two_point_distribution(k, seed):
    """Enumerates how many of k samples take the first value: an exact expectation, no sampling."""
    generator = np.random.default_rng(seed)
    low, high, p = *generator.normal(size=2), generator.uniform(0.05, 0.95)
    from scipy.stats import binom

    with jax.enable_x64(True):
        counts = np.arange(k + 1)
        draws = np.where(np.arange(k)[None, :] < counts[:, None], low, high)
        estimates = jax.vmap(variance_correction)(jnp.asarray(draws))
        expectation = np.sum(binom.pmf(counts, k, p) * np.asarray(estimates))
    np.testing.assert_allclose(expectation, p * (1 - p) * (high - low) ** 2 / k, rtol=1e-9)


def test_printed_equals_unbiased_at_two_samples_only():
    two = V[:2]
    np.testing.assert_allclose(
        variance_correction(two, "printed"), variance_correction(two, "unbiased"), rtol=1e-6
    )
    assert variance_correction(V, "printed") > variance_correction(V, "unbiased")


def test_variance_weight():
    assert [variance_weight(k, "none") for k in (1, 2, 4)] == [1, 0.5, 0.25]
    assert [variance_weight(k, "unbiased") for k in (2, 4)] == [0, 0]
    assert [variance_weight(k, "printed") for k in (2, 4, 8)] == [0, -0.5, -0.75]


@pytest.mark.parametrize("spread", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("k", [2, 3, 4, 16, 128, 1024])
@pytest.mark.parametrize("correction", ["unbiased", "printed"])
def test_float32_accuracy_far_from_zero(generator, spread, k, correction):
    samples = (1e4 + spread * generator.normal(size=k)).astype(np.float32)
    single = jax.jit(lambda v: variance_correction(v, correction))(jnp.asarray(samples))
    exact = np.var(samples.astype(np.float64), ddof=1) / k
    exact *= k - 1 if correction == "printed" else 1
    np.testing.assert_allclose(np.float64(single), exact, rtol=1e-5)


@pytest.mark.parametrize("correction", ["unbiased", "printed"])
def test_one_sample_has_no_variance(correction):
    with pytest.raises(ValueError, match=r"k must be at least 2, got 1.*one sample has none"):
        variance_correction(V[:1], correction)
    with pytest.raises(ValueError, match="k must be at least 2"):
        variance_weight(1, correction)


def test_unknown_correction(unchecked):
    with pytest.raises(ValueError, match="'unbiased', 'printed', 'none', got 'biased'"):
        variance_correction(V, "biased")
