import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cvaml import value_targets

REWARDS = jnp.array([1.0, 2.0, 3.0])
DISCOUNTS = jnp.array([0.5, 0.5, 0.5])
VALUES = jnp.array([10.0, 20.0, 30.0, 40.0])


@pytest.mark.parametrize(
    ("b", "expected"),
    [
        (0, [10.0, 20.0, 30.0, 40.0]),
        (1, [1 + 10.0, 2 + 15.0, 3 + 20.0]),
        (2, [1 + 1.0 + 7.5, 2 + 1.5 + 10.0]),
        (3, [1 + 1.0 + 0.75 + 5.0]),
    ],
)
def test_hand_worked(b, expected):
    for transform in (lambda f: f, jax.jit):
        targets = transform(lambda r, d, v: value_targets(r, d, v, b))(REWARDS, DISCOUNTS, VALUES)
        np.testing.assert_allclose(targets, expected, rtol=1e-6)


def test_zero_discount_ends_the_sum():
    discounts = jnp.array([0.5, 0.0, 0.5])
    np.testing.assert_allclose(value_targets(REWARDS, discounts, VALUES, 3), [1 + 0.5 * 2.0])
    np.testing.assert_allclose(value_targets(REWARDS, discounts, VALUES, 1), [11.0, 2.0, 23.0])


def test_vmap_equals_loop(generator):
    rewards, discounts = (jnp.asarray(generator.random((5, 4), np.float32)) for _ in range(2))
    values = jnp.asarray(generator.random((5, 5), np.float32))
    batched = jax.vmap(lambda r, d, v: value_targets(r, d, v, 2))(rewards, discounts, values)
    for i in range(5):
        single = value_targets(rewards[i], discounts[i], values[i], 2)
        np.testing.assert_allclose(batched[i], single, rtol=1e-6)


def test_gradient_is_the_product_of_discounts():
    gradient = jax.grad(lambda v: value_targets(REWARDS, DISCOUNTS, v, 3)[0])(VALUES)
    np.testing.assert_allclose(gradient, [0, 0, 0, 0.125])


@pytest.mark.parametrize("b", [-1, 4, 1.0, True])
def test_bad_b(unchecked, b):
    with pytest.raises(ValueError, match="b must be"):
        value_targets(REWARDS, DISCOUNTS, VALUES, b)


def test_bad_shapes(unchecked):
    with pytest.raises(ValueError, match="values must have length 4, got 3"):
        value_targets(REWARDS, DISCOUNTS, VALUES[:3], 1)
    with pytest.raises(ValueError, match="rewards must have 1 dimension"):
        value_targets(REWARDS[None], DISCOUNTS, VALUES, 1)
    with pytest.raises(ValueError, match="discounts must have 1 dimension"):
        jax.jit(lambda d: value_targets(REWARDS, d, VALUES, 1))(DISCOUNTS[None])
