"""The closed-form gradient against automatic differentiation of the library's loss."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tabular_cases import doubled, random_mdp

from cvaml.losses import expected_vaml_loss, variant
from cvaml.tabular.lowrank import LowRank, draw_model, kernel
from cvaml.tabular.objective import (
    Problem,
    as_problem,
    autodiff,
    backup,
    coefficients,
    exact_objective,
    fast_gradients,
    has_fast_path,
)

KEY = jax.random.key(0)
CASES = [
    ("mle", None),
    ("vaml-1-0", 1),
    ("vaml-1-0", 4),
    ("cvaml-1-0", 2),
    ("printed-1-0", 4),
    ("vaml-1-1", 1),
    ("vaml-1-1", 4),
    ("cvaml-1-1", 4),
    ("printed-1-1", 8),
    ("vaml-1-1+td", 1),
    ("cvaml-1-0+kl", 4),
    ("cvaml-1-1+td+kl", 4),
]


def setting(generator, actions=1, spread=1.0, terminal=None):
    mdp = random_mdp(generator, actions=actions, terminal=terminal)
    policy = generator.dirichlet(np.ones(actions), mdp.states)
    problem = doubled(as_problem(mdp, policy))
    model = doubled(draw_model(generator, 3, mdp.states, mdp.states * actions, spread))
    return problem, model, jnp.asarray(generator.standard_normal(mdp.states))


def relative(found, wanted):
    return np.abs(found - wanted).max() / max(np.abs(wanted).max(), 1e-12)


@pytest.mark.parametrize("actions", [1, 3])
@pytest.mark.parametrize(("name", "k"), CASES)
def test_fast_gradients_equal_autodiff(name, k, actions, generator, x64):
    problem, model, values = setting(generator, actions)
    chosen = variant(name, k)
    assert has_fast_path(chosen)
    numbers = doubled(coefficients(chosen))
    # kl = 0.1 as float32 is another number than 0.1 as float64
    numbers = numbers._replace(kl=chosen.kl)
    wanted = jax.jit(autodiff(chosen))(numbers, model, values, problem, KEY)
    found = jax.jit(fast_gradients)(numbers, model, values, problem, KEY)
    assert found.model.phi.dtype == jnp.float64
    assert relative(found.model.phi, wanted.model.phi) < 1e-5
    assert relative(found.model.psi, wanted.model.psi) < 1e-5
    np.testing.assert_allclose(found.values, wanted.values, atol=1e-10)
    np.testing.assert_allclose(found.visits, wanted.visits, rtol=1e-10)
    np.testing.assert_allclose(found.means, wanted.means, rtol=1e-10)
    assert np.abs(wanted.values).max() > 0 or not chosen.trains_value


def test_gradient_by_hand(x64):
    # One row, two states, V = (0, 1), uniform model, true kernel on state 1, no correction at
    # k = 1: (mu - 1)^2 + p(1 - p) has derivative 2 (mu - 1) + (1 - 2p) = -1 in p, times
    # p (1 - p) = 1/4 in the logit of state 1.
    model = LowRank(phi=jnp.array([[0.0, 0.0]]), psi=jnp.array([[1.0, 1.0]]))
    truth = jnp.array([[0.0, 1.0], [0.0, 1.0]])
    problem = Problem(truth, jnp.zeros(2), jnp.ones((2, 1)), jnp.ones(2), 0.9)
    numbers = doubled(coefficients(variant("vaml-1-0", 1)))
    found = fast_gradients(numbers, model, jnp.array([0.0, 1.0]), problem, KEY)
    np.testing.assert_allclose(found.model.phi, [[0.5, -0.5]])  # two equal rows
    corrected = doubled(coefficients(variant("cvaml-1-0", 2)))
    found = fast_gradients(corrected, model, jnp.array([0.0, 1.0]), problem, KEY)
    np.testing.assert_allclose(found.model.phi, [[0.5, -0.5]])  # 1 - 2p = 0 at p = 1/2


def test_replacing_the_loss_changes_the_gradient(generator, x64):
    problem, model, values = setting(generator)

    def doubled_loss(*args, **kwargs):
        return 2 * expected_vaml_loss(*args, **kwargs)

    base = variant("cvaml-1-0")
    other = replace(base, expected=doubled_loss)
    assert has_fast_path(base)
    assert not has_fast_path(other)
    arguments = (coefficients(base), model, values, problem, KEY)
    once, twice = autodiff(base)(*arguments), autodiff(other)(*arguments)
    np.testing.assert_allclose(twice.model.phi, 2 * once.model.phi)


def test_m_steps_compare_m_step_kernels(generator, x64):
    problem, model, values = setting(generator, actions=2)
    chosen = variant("cvaml-3-1", 2)
    assert not has_fast_path(chosen)
    p = np.asarray(kernel(model))
    step = np.einsum("xa,xay->xy", problem.policy, p.reshape(6, 2, 6))
    true_step = np.einsum("xa,xay->xy", problem.policy, problem.kernel.reshape(6, 2, 6))
    targets = np.asarray(backup(problem, problem.kernel @ values))
    p_true = problem.kernel @ true_step @ true_step
    errors = p @ step @ step @ values - p_true @ targets
    floor = p_true @ targets**2 - (p_true @ targets) ** 2
    found = exact_objective(chosen, model, values, problem)
    np.testing.assert_allclose(found, np.sum(errors**2 + floor))


def test_only_muzero_variants_train_the_value(generator, x64):
    problem, model, values = setting(generator)
    for name, reaches in [("vaml-1-0", False), ("vaml-1-1", True), ("cvaml-1-1+td", True)]:
        chosen = variant(name)
        for rule in (autodiff(chosen), fast_gradients):
            found = rule(coefficients(chosen), model, values, problem, KEY)
            assert bool(jnp.any(found.values != 0)) is reaches


def test_backup_is_the_policys_and_stops_at_terminal_states(generator, x64):
    ends = np.array([False] * 5 + [True])
    problem, _, values = setting(generator, actions=3, terminal=ends)
    found = np.asarray(backup(problem, problem.kernel @ values))
    q = (problem.rewards + 0.9 * problem.kernel @ values).reshape(6, 3)
    np.testing.assert_allclose(found[:5], (problem.policy * q).sum(axis=1)[:5], rtol=1e-6)
    assert found[5] == 0
