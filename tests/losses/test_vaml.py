"""Hand-worked values and gradients of the family, its limits, and its expectation by sampling."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cvaml import (
    cvaml_loss,
    expected_vaml_loss,
    itervaml_loss,
    mb_vaml_loss,
    muzero_loss,
    td_loss,
    vaml_loss,
)

V = jnp.array([1.0, 3.0, 8.0])  # mean 4, s² = 13


@pytest.mark.parametrize(
    ("correction", "value", "gradient"),
    [
        ("none", 9.0, np.full(3, 2 * 3 / 3)),
        ("unbiased", 9 - 13 / 3, 2 - np.array([-3.0, -1.0, 4.0]) / 3),
        ("printed", 9 - 26 / 3, 2 - np.array([-3.0, -1.0, 4.0]) * 2 / 3),
    ],
)
def test_cvaml_hand_worked(correction, value, gradient):
    loss = jax.jit(lambda v, y: cvaml_loss(v, y, correction))
    np.testing.assert_allclose(loss(V, 1.0), value, rtol=1e-5)
    np.testing.assert_allclose(jax.grad(loss)(V, 1.0), gradient, rtol=1e-6)
    assert jax.grad(loss, argnums=1)(V, 1.0) == 0, "the target is data"
    batch = jax.vmap(loss)(jnp.stack([V, V]), jnp.array([1.0, 4.0]))
    np.testing.assert_allclose(batch, [value, value - 9], rtol=1e-5, atol=1e-6)


def test_vaml_is_cvaml_without_correction():
    np.testing.assert_allclose(vaml_loss(V, 1.0), 9.0)
    np.testing.assert_allclose(vaml_loss(V[:1], 3.0), 4.0)


def test_cvaml_may_be_negative():
    assert cvaml_loss(V, 4.0) == pytest.approx(-13 / 3)


def test_no_variance_makes_vaml_and_cvaml_equal():
    v = jnp.full(5, 2.5)
    np.testing.assert_allclose(cvaml_loss(v, 1.0), vaml_loss(v, 1.0))


def test_one_sample_with_a_correction_is_an_error():
    with pytest.raises(ValueError, match="cvaml_loss: k must be at least 2"):
        cvaml_loss(V[:1], 0.0)
    with pytest.raises(ValueError, match="mb_vaml_loss: k must be at least 2"):
        mb_vaml_loss(V[None], V, correction="unbiased")


UNROLL = jnp.array([[1.0, 2.0], [3.0, 6.0]])  # two trajectories of two steps: means 2 and 4
TARGETS = jnp.array([1.0, 1.0])  # step losses 1 and 9, s²/k 1 and 4


@pytest.mark.parametrize(
    ("weights", "correction", "value"),
    [
        (None, "none", 9.0),
        (None, "unbiased", 5.0),
        ([0.0, 1.0], "none", 9.0),
        ([1.0, 1.0], "none", 5.0),
        ([1.0, 1.0], "unbiased", 2.5),
        ([3.0, 1.0], "none", 3.0),
        ([1.0, 0.0], "printed", 0.0),
        ([0.0, 0.0], "unbiased", 0.0),
    ],
)
def test_mb_vaml_hand_worked(weights, correction, value):
    weights = None if weights is None else jnp.array(weights)
    loss = jax.jit(lambda v: mb_vaml_loss(v, TARGETS, weights, correction))
    np.testing.assert_allclose(loss(UNROLL), value, rtol=1e-6)
    gradient = jax.grad(loss)(UNROLL)
    assert jnp.isfinite(gradient).all()
    if weights is not None:
        assert (gradient[:, weights == 0] == 0).all(), "a masked step has no gradient"


def test_mb_vaml_gradient():
    gradient = jax.grad(lambda v: mb_vaml_loss(v, TARGETS, jnp.ones(2), "none"))(UNROLL)
    np.testing.assert_allclose(gradient, [[0.5, 1.5], [0.5, 1.5]])
    targets = jax.grad(lambda y: mb_vaml_loss(UNROLL, y, jnp.ones(2)))(TARGETS)
    np.testing.assert_allclose(targets, 0)


def test_mb_vaml_bad_shapes(unchecked):
    with pytest.raises(ValueError, match="targets must have length 2, got 3"):
        mb_vaml_loss(UNROLL, jnp.ones(3))
    with pytest.raises(ValueError, match="weights must have length 2"):
        mb_vaml_loss(UNROLL, TARGETS, jnp.ones(1))
    with pytest.raises(ValueError, match="v_model must have 2 dimension"):
        mb_vaml_loss(UNROLL[0], TARGETS)
    with pytest.raises(ValueError, match="m must be at least 1"):
        mb_vaml_loss(UNROLL[:, :0], TARGETS[:0])
    with pytest.raises(ValueError, match="v_model must have 1 dimension"):
        vaml_loss(UNROLL, 0.0)


P_MODEL = jnp.array([0.5, 0.5, 0.0])
P_TRUE = jnp.array([0.0, 0.5, 0.5])
VALUES = jnp.array([0.0, 2.0, 4.0])  # model: mean 1, variance 1; truth: mean 3, variance 1


def test_itervaml_hand_worked():
    np.testing.assert_allclose(itervaml_loss(P_MODEL, P_TRUE, VALUES), 4.0)
    gradient = jax.grad(itervaml_loss, argnums=(0, 1, 2))(P_MODEL, P_TRUE, VALUES)
    np.testing.assert_allclose(gradient[0], [0.0, -8.0, -16.0])
    np.testing.assert_allclose(gradient[1], 0)
    np.testing.assert_allclose(gradient[2], 0)
    batch = jax.vmap(itervaml_loss, in_axes=(0, None, None))(
        jnp.stack([P_MODEL, P_TRUE]), P_TRUE, VALUES
    )
    np.testing.assert_allclose(batch, [4.0, 0.0])


@pytest.mark.parametrize(
    ("k", "correction", "value"),
    [(1, "none", 6.0), (4, "none", 5.25), (4, "unbiased", 5.0), (4, "printed", 4.5)],
)
def test_expected_loss_hand_worked(k, correction, value):
    loss = jax.jit(lambda p, v: expected_vaml_loss(p, P_TRUE, v, k, correction))
    np.testing.assert_allclose(loss(P_MODEL, VALUES), value)
    weight = value - 5
    # d/dV_i of (mean - 3)² + c · variance, on the model's side only.
    expected = np.array(P_MODEL) * (2 * (1 - 3) + 2 * weight * (np.array(VALUES) - 1))
    np.testing.assert_allclose(jax.grad(loss, argnums=1)(P_MODEL, VALUES), expected, rtol=1e-6)


def test_expected_loss_with_targets():
    targets = jnp.array([1.0, 1.0, 5.0])  # truth: mean 3, variance 4
    loss = expected_vaml_loss(P_MODEL, P_TRUE, VALUES, 2, "none", targets)
    np.testing.assert_allclose(loss, (1 - 3) ** 2 + 0.5 + 4)
    gradient = jax.grad(expected_vaml_loss, argnums=5)(P_MODEL, P_TRUE, VALUES, 2, "none", targets)
    np.testing.assert_allclose(gradient, 0)


def test_expected_loss_bad_input(unchecked):
    with pytest.raises(ValueError, match="p_true must have length 3, got 2"):
        expected_vaml_loss(P_MODEL, P_TRUE[:2], VALUES, 1, "none")
    with pytest.raises(ValueError, match="k must be a Python integer"):
        expected_vaml_loss(P_MODEL, P_TRUE, VALUES, jnp.asarray(2), "none")


DRAWS = 100_000


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("correction", ["none", "unbiased", "printed"])
def test_monte_carlo_mean_equals_the_expected_loss(generator, k, correction):
    p_model, p_true = generator.dirichlet(np.ones(6), size=2)
    values = generator.normal(size=6)
    v_model = values[generator.choice(6, size=(DRAWS, k), p=p_model)]
    targets = values[generator.choice(6, size=DRAWS, p=p_true)]

    def mean_and_error(correction):
        losses = jax.vmap(lambda v, y: cvaml_loss(v, y, correction))(
            jnp.asarray(v_model), jnp.asarray(targets)
        )
        losses = np.asarray(losses)
        return np.mean(losses), np.std(losses) / np.sqrt(DRAWS)

    with jax.enable_x64(True):
        mean, error = mean_and_error(correction)
        expected = {
            name: float(
                expected_vaml_loss(
                    jnp.asarray(p_model), jnp.asarray(p_true), jnp.asarray(values), k, name
                )
            )
            for name in ("none", "unbiased", "printed")
        }
    assert abs(mean - expected[correction]) < 4 * error
    if k == 4 and correction == "printed":
        assert abs(mean - expected["unbiased"]) > 10 * error


REWARDS, DISCOUNTS = jnp.array([1.0, 2.0]), jnp.array([0.5, 0.5])  # target 1 + 1 + 0.25 · 4 = 3


def test_muzero_hand_worked_and_where_its_gradient_stops():
    np.testing.assert_allclose(muzero_loss(V, REWARDS, DISCOUNTS, 4.0), 1.0)
    np.testing.assert_allclose(muzero_loss(V, REWARDS, DISCOUNTS, 4.0, "unbiased"), 1 - 13 / 3)
    gradients = jax.jit(jax.grad(muzero_loss, argnums=(0, 1, 2, 3)))(V, REWARDS, DISCOUNTS, 4.0)
    np.testing.assert_allclose(gradients[0], np.full(3, 2 / 3), rtol=1e-6)
    for stopped in gradients[1:]:
        np.testing.assert_allclose(stopped, 0)


def test_td_hand_worked_and_where_its_gradient_stops():
    np.testing.assert_allclose(td_loss(5.0, REWARDS, DISCOUNTS, 4.0), 4.0)
    gradients = jax.jit(jax.grad(td_loss, argnums=(0, 1, 2, 3)))(5.0, REWARDS, DISCOUNTS, 4.0)
    np.testing.assert_allclose(gradients[0], 4.0)
    for stopped in gradients[1:]:
        np.testing.assert_allclose(stopped, 0)
    batch = jax.vmap(td_loss, in_axes=(0, None, None, None))(
        jnp.array([5.0, 3.0]), REWARDS, DISCOUNTS, 4.0
    )
    np.testing.assert_allclose(batch, [4.0, 0.0])


def test_termination_ends_the_target():
    np.testing.assert_allclose(td_loss(1.0, REWARDS, jnp.array([0.0, 0.5]), 1e6), 0)


def test_td_and_muzero_need_a_reward():
    for function in (muzero_loss, td_loss):
        first = V if function is muzero_loss else 1.0
        with pytest.raises(ValueError, match="must be at least 1, got 0"):
            function(first, REWARDS[:0], DISCOUNTS[:0], 1.0)


def test_muzero_with_one_deterministic_sample_is_td():
    np.testing.assert_allclose(
        muzero_loss(jnp.array([5.0]), REWARDS, DISCOUNTS, 4.0),
        td_loss(5.0, REWARDS, DISCOUNTS, 4.0),
    )
