"""The sampled gradient has the exact one as its mean."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tabular_cases import random_mdp

from cvaml.losses import variant
from cvaml.tabular.lowrank import draw_model
from cvaml.tabular.objective import as_problem, autodiff, coefficients
from cvaml.tabular.sampled import draw, sampled
from cvaml.types import UserError

CASES = [
    (name, k) for name in ("vaml-1-0", "cvaml-1-0", "printed-1-0", "cvaml-1-1") for k in (2, 4)
]


@pytest.mark.parametrize(
    ("name", "k"), [*CASES, ("vaml-1-0", 1), ("vaml-1-1", 4), ("mle", None), ("cvaml-1-0+kl", 4)]
)
def test_mean_of_sampled_gradients_is_the_exact_one(name, k, generator):
    mdp = random_mdp(generator, actions=1)
    problem = jax.tree.map(jnp.asarray, as_problem(mdp))
    model = jax.tree.map(jnp.asarray, draw_model(generator, 2, 6, 6, spread=1.0))
    values = jnp.asarray(generator.standard_normal(6), jnp.float32)
    chosen = variant(name, k)
    arguments = (coefficients(chosen), model, values, problem)
    exact = autodiff(chosen)(*arguments, jax.random.key(0))
    draws = jax.jit(jax.vmap(lambda key: sampled(chosen)(*arguments, key)))(
        jax.random.split(jax.random.key(1), 10_000)
    )
    found = (draws.model.phi, draws.model.psi, draws.values, draws.means)
    wanted = (exact.model.phi, exact.model.psi, exact.values, exact.means)
    for samples, mean in zip(found, wanted, strict=True):
        samples = np.asarray(samples, np.float64)
        error = samples.std(axis=0) / np.sqrt(len(samples))
        assert (np.abs(samples.mean(axis=0) - mean) <= 4 * error + 1e-6).all()


def test_calibrated_weights_are_those_of_the_u_statistic():
    # The leave-one-out weight is (2/k)(v_s - mean of others)(mean of others - y): with one row
    # and psi = 1 the gradient of phi is sum_s w_s (onehot_s - p).
    rule = sampled(variant("cvaml-1-0", 3))
    key = jax.random.key(3)
    model = jax.tree.map(jnp.asarray, draw_model(np.random.default_rng(0), 1, 4, 4))
    model = model._replace(psi=jnp.array([[1.0, 0.0, 0.0, 0.0]]))
    values = jnp.array([1.0, -2.0, 0.5, 3.0])
    mdp = random_mdp(np.random.default_rng(1), states=4, actions=1)
    problem = jax.tree.map(jnp.asarray, as_problem(mdp))
    p = jax.nn.softmax(model.psi.T @ model.phi, axis=1)
    of_model, of_first, _ = jax.random.split(key, 3)
    states = np.asarray(draw(of_model, p, 3))[:, 0]
    target = float(values[draw(of_first, problem.kernel, 1)[0, 0]])
    v = np.asarray(values)[states]
    wanted = np.zeros(4)
    for s in range(3):
        others = np.delete(v, s).mean()
        weight = 2 / 3 * (v[s] - others) * (others - target)
        wanted += weight * (np.eye(4)[states[s]] - np.asarray(p)[0])
    found = rule(coefficients(variant("cvaml-1-0", 3)), model, values, problem, key)
    np.testing.assert_allclose(found.model.phi[0], wanted, atol=1e-5)


def test_draws_follow_their_distribution():
    p = jnp.array([[0.0, 0.25, 0.75, 0.0], [1.0, 0.0, 0.0, 0.0]])
    found = np.asarray(draw(jax.random.key(0), p, 20_000))
    assert set(found[:, 0]) == {1, 2}
    assert (found[:, 1] == 0).all()
    np.testing.assert_allclose((found[:, 0] == 1).mean(), 0.25, atol=4 * 0.0031)


def test_several_model_steps_are_refused():
    with pytest.raises(UserError, match="m = 1"):
        sampled(variant("cvaml-3-1"))
