"""Fits whose answer is known."""

import jax
import numpy as np
import pytest
from tabular_cases import garnet_start, garnet_task, random_mdp, stack

from cvaml.losses import variant
from cvaml.tabular.fit import FitState, Steps, Task, advance_block, init_fit
from cvaml.tabular.lowrank import LowRank, draw_model, kernel
from cvaml.tabular.mdp import FiniteMDP, policy_value
from cvaml.tabular.objective import as_problem, autodiff, coefficients, fast_gradients
from cvaml.types import UserError


def fit(tasks, states, windows=10, window=500, rule=fast_gradients):
    tasks, states = stack(tasks), stack(states)
    for _ in range(windows):
        states, movement = advance_block(rule, tasks, states, window)
    return jax.tree.map(np.asarray, states), movement


def small_task(mdp, name, k=None, model_step=1e-2, value_step=0.1, final=1.0, total=1e4):
    steps = Steps(*map(np.float32, (model_step, value_step, final, total)))
    return Task(as_problem(mdp), coefficients(variant(name, k)), steps, np.uint32(0))


def test_full_rank_cvaml_finds_the_value_exactly():
    tasks, mdps = zip(*(garnet_task("cvaml-1-0", problem=i) for i in range(4)), strict=True)
    states, _ = fit(tasks, [garnet_start(50, i) for i in range(4)], windows=8)
    truth = np.stack([policy_value(mdp) for mdp in mdps])
    assert np.mean((states.values - truth) ** 2, axis=1).max() < 1e-6


def test_full_rank_likelihood_recovers_the_kernel():
    task, mdp = garnet_task("mle", model_step=0.05, final=0.001, total=8000)
    # A softmax reaches a probability of 0 in the limit only; 10 of 50 successors are positive.
    states, _ = fit([task], [garnet_start(50, spread=0.1)], windows=16)
    found = kernel(LowRank(states.model.phi[0], states.model.psi[0]))
    np.testing.assert_allclose(found, mdp.transitions[:, 0], atol=1e-5)


@pytest.mark.parametrize("name", ["mle", "vaml-1-0", "cvaml-1-0"])
def test_td_ends_at_the_value_of_the_fitted_model(name, generator):
    mdp = random_mdp(generator, actions=1)
    start = init_fit(draw_model(generator, 2, 6, 6), 6)
    states, _ = fit([small_task(mdp, name, final=0.0, total=4000)], [start], windows=9)
    fitted = np.asarray(kernel(LowRank(states.model.phi[0], states.model.psi[0])))
    of_model = policy_value(FiniteMDP(fitted[:, None].astype(float), mdp.rewards, 0.9))
    np.testing.assert_allclose(states.values[0], of_model, atol=2e-3)


@pytest.mark.parametrize("name", ["mle", "vaml-1-0", "cvaml-1-0"])
def test_without_a_future_the_value_is_the_reward(name, generator):
    mdp = random_mdp(generator, actions=1, discount=0.0)
    start = init_fit(draw_model(generator, 2, 6, 6), 6)
    states, _ = fit([small_task(mdp, name)], [start], windows=1)
    np.testing.assert_allclose(states.values[0], mdp.rewards[:, 0], atol=1e-5)


@pytest.mark.parametrize("rank", [1, 6])
def test_deterministic_kernel_with_a_self_loop(rank, generator):
    # A ring in which state 0 stays where it is; the calibrated loss needs no exact kernel.
    mdp = FiniteMDP(np.eye(6)[[0, 0, 1, 2, 3, 4]][:, None], generator.standard_normal((6, 1)), 0.5)
    start = init_fit(draw_model(generator, rank, 6, 6), 6)
    states, _ = fit([small_task(mdp, "cvaml-1-0", model_step=3e-3)], [start], windows=12)
    # The extreme value can be predicted only by a point mass, which a softmax approaches.
    np.testing.assert_allclose(states.values[0], policy_value(mdp), atol=0.02)


def frozen_model_fit(mdp, name, k, targets_fixed):
    """The (1,1) value update alone, with the true kernel as model."""
    truth = mdp.transitions[:, 0]
    states = mdp.states
    model = LowRank(np.eye(states, dtype=np.float32), np.log(truth).T.astype(np.float32))
    task = small_task(mdp, name, k, model_step=0.0, value_step=0.5)
    state = init_fit(model, states)
    if targets_fixed:  # γ = 0 makes y = r, hence independent of V
        task = task._replace(problem=task.problem._replace(discount=np.float32(0)))
    result, _ = fit([task], [state], windows=8)
    return truth, mdp.rewards[:, 0], result.values[0]


def test_muzero_value_with_the_true_kernel_smooths_its_targets(generator):
    mdp = random_mdp(generator, actions=1)
    truth, target, found = frozen_model_fit(mdp, "vaml-1-1", 1, targets_fixed=True)
    smoother = (truth.T @ truth) / truth.sum(axis=0)[:, None]
    np.testing.assert_allclose(found, smoother @ target, atol=1e-3)


def test_muzero_value_with_its_own_target_has_the_biased_fixed_point(generator):
    mdp = random_mdp(generator, actions=1)
    truth, rewards, found = frozen_model_fit(mdp, "vaml-1-1", 1, targets_fixed=False)
    smoother = (truth.T @ truth) / truth.sum(axis=0)[:, None]
    wanted = np.linalg.solve(np.eye(6) - 0.9 * smoother @ truth, smoother @ rewards)
    np.testing.assert_allclose(found, wanted, atol=1e-3)
    assert np.abs(wanted - policy_value(mdp)).max() > 0.1


def test_more_samples_leave_less_bias_and_more_variance():
    counts = [2, 4, 8, 16]
    problems = range(3)
    tasks = [
        garnet_task("vaml-1-0", k, i, 1.0, model_step=3e-3)[0] for k in counts for i in problems
    ]
    tasks += [garnet_task("cvaml-1-0", 4, i, 1.0, model_step=3e-3)[0] for i in problems]
    states, _ = fit(tasks, [garnet_start(5, i) for _ in range(5) for i in problems], windows=8)
    bias, variance = [], []
    for index, task in enumerate(tasks):
        p = np.asarray(kernel(LowRank(states.model.phi[index], states.model.psi[index])))
        v = states.values[index]
        bias.append(np.mean((p @ v - task.problem.kernel @ v) ** 2))
        variance.append(np.mean(p @ v**2 - (p @ v) ** 2))
    bias, variance = (np.reshape(x, (5, 3)).mean(axis=1) for x in (bias, variance))
    assert (np.diff(bias) < 0).all()
    assert (np.diff(variance) > 0).all()
    # (2 -> 16) is a factor of 64 under 1/k^2
    slope = np.polyfit(np.log(counts), np.log(bias[:4]), 1)[0]
    assert -2.8 < slope < -1.4


def test_fast_and_general_rules_train_the_same(generator):
    mdp = random_mdp(generator, actions=2)
    start = init_fit(draw_model(generator, 3, 6, 12), 6)
    for name in ("vaml-1-0", "cvaml-1-1+td"):
        task = small_task(mdp, name)
        fast, _ = fit([task], [start], windows=1, window=50)
        general, _ = fit([task], [start], windows=1, window=50, rule=autodiff(variant(name)))
        np.testing.assert_allclose(fast.values, general.values, atol=1e-5)
        np.testing.assert_allclose(fast.model.psi, general.model.psi, atol=1e-4)


def test_a_fit_does_not_depend_on_its_place_in_the_block():
    names = [("mle", None), ("vaml-1-0", 1), ("cvaml-1-1", 4)]
    tasks = [garnet_task(n, k, i, 0.1)[0] for n, k in names for i in range(7)]
    starts = [garnet_start(5, i) for _ in names for i in range(7)]
    states, _ = fit(tasks, starts, windows=1, window=50)
    order = np.random.default_rng(1).permutation(len(tasks))
    shuffled, _ = fit([tasks[i] for i in order], [starts[i] for i in order], windows=1, window=50)
    np.testing.assert_array_equal(shuffled.values, states.values[order])
    np.testing.assert_array_equal(shuffled.model.phi, states.model.phi[order])


def test_windows_continue_where_they_stopped():
    task, _ = garnet_task("cvaml-1-0")
    twice, _ = fit([task], [garnet_start(5)], windows=2, window=25)
    once, movement = fit([task], [garnet_start(5)], windows=1, window=50)
    np.testing.assert_array_equal(once.values, twice.values)
    assert int(once.step[0]) == 50
    assert isinstance(once, FitState)
    assert bool(movement.finite[0])
    assert float(movement.change[0]) > 0


def test_rank_zero_is_refused(generator):
    with pytest.raises(UserError, match="at least 1, got 0"):
        draw_model(generator, 0, 5, 5)
