import jax
import numpy as np
import pytest
from tabular_cases import doubled, stack

from cvaml.losses import variant
from cvaml.tabular.cliffwalk import cliff_cells, cliffwalk, draw_policy, goal_cell, start_cell
from cvaml.tabular.control import exact_values, improve, iterate_policies
from cvaml.tabular.fit import Steps, Task, init_fit
from cvaml.tabular.lowrank import LowRank, draw_model
from cvaml.tabular.mdp import action_values, check_mdp, greedy_policy, optimal_value, policy_value
from cvaml.tabular.objective import as_problem, autodiff, coefficients, fast_gradients
from cvaml.types import UserError

UP, RIGHT, DOWN, LEFT = range(4)


@pytest.mark.parametrize("cliff", ["reset", "end"])
@pytest.mark.parametrize("temp", [0.25, 0.5, 0.99, 1.0])
def test_rows_are_distributions(temp, cliff):
    check_mdp(cliffwalk(temp, 0.9, cliff))


def test_one_row_by_hand():
    """From (3, 1), above the cliff: up, right, down off the cliff, left."""
    mdp = cliffwalk(0.7)
    row = mdp.transitions[3 * 5 + 1, RIGHT]
    expected = np.zeros(25)
    expected[[2 * 5 + 1, 3 * 5 + 2, start_cell(), 3 * 5 + 0]] = [0.1, 0.7, 0.1, 0.1]
    np.testing.assert_allclose(row, expected)
    np.testing.assert_allclose(mdp.rewards[3 * 5 + 1, RIGHT], -1 - 99 * 0.1)
    np.testing.assert_allclose(mdp.rewards[3 * 5 + 1, DOWN], -1 - 99 * 0.7)


def test_a_wall_keeps_the_walker():
    mdp = cliffwalk(1.0)
    assert mdp.transitions[0, UP, 0] == 1
    assert mdp.transitions[start_cell(), LEFT, start_cell()] == 1
    assert mdp.rewards[0, UP] == -1


def test_a_cliff_that_ends_the_episode():
    mdp = cliffwalk(1.0, cliff="end")
    assert mdp.transitions[start_cell(), RIGHT, start_cell() + 1] == 1
    assert mdp.rewards[start_cell(), RIGHT] == -100
    np.testing.assert_array_equal(np.flatnonzero(mdp.terminal), [21, 22, 23, 24])


def test_gymnasiums_table():
    gymnasium = pytest.importorskip("gymnasium")
    theirs = gymnasium.make("CliffWalking-v1").unwrapped
    shape = theirs.shape
    mdp = cliffwalk(1.0, shape=shape)
    for state, actions in theirs.P.items():
        for action, [(probability, lands, reward, ends)] in actions.items():
            assert mdp.transitions[state, action, lands] == probability == 1
            assert mdp.rewards[state, action] == reward
            assert ends == (lands == goal_cell(shape))


@pytest.mark.parametrize(("temp", "cliff"), [(0.5, "reset"), (0.99, "reset"), (0.8, "end")])
def test_policy_iteration_agrees_with_value_iteration(temp, cliff):
    mdp = cliffwalk(temp, 0.8, cliff)
    v = np.zeros(25)
    for _ in range(200):  # 0.8^200 is 4e-20
        q = mdp.rewards + 0.8 * np.einsum("xay,y->xa", mdp.transitions, v)
        v = np.where(mdp.terminal, 0, q.max(axis=1))
    np.testing.assert_allclose(optimal_value(mdp), v, atol=1e-10)


def test_the_sure_walker_takes_the_short_way():
    """Up, four times right, down: six steps of cost 1."""
    mdp = cliffwalk(1.0, 0.9)
    values = optimal_value(mdp)
    np.testing.assert_allclose(values[start_cell()], -(1 - 0.9**6) / 0.1)
    drawn = draw_policy(greedy_policy(action_values(mdp, values))).splitlines()
    assert drawn[3:] == ["→ → → → ↓", "↑ C C C G"]


def test_optimal_return_near_certainty():
    """Along row 3 with slips: the chain of the six cells on the way, solved by itself."""
    mdp = cliffwalk(0.99, 0.9)
    policy = greedy_policy(action_values(mdp, optimal_value(mdp)))
    way = [start_cell(), 15, 16, 17, 18, 19]
    assert [int(policy[x].argmax()) for x in way] == [UP, RIGHT, RIGHT, RIGHT, RIGHT, DOWN]
    np.testing.assert_allclose(optimal_value(mdp)[start_cell()], -5.807072472157, rtol=1e-12)
    np.testing.assert_allclose(policy_value(mdp, policy)[start_cell()], -5.807072472157, rtol=1e-12)


@pytest.mark.parametrize("temp", [0.0, -0.1, 1.1, float("nan")])
def test_no_probability(temp):
    with pytest.raises(UserError, match="temp is the probability"):
        cliffwalk(temp)


def test_cells():
    assert (start_cell(), goal_cell()) == (20, 24)
    np.testing.assert_array_equal(np.flatnonzero(cliff_cells()), [21, 22, 23])


@pytest.mark.parametrize("name", ["vaml-1-0", "vaml-1-1", "cvaml-1-1+td+kl"])
def test_action_conditioned_gradients_equal_autodiff(name, x64, generator):
    mdp = cliffwalk(0.8)
    problem = doubled(as_problem(mdp, generator.dirichlet(np.ones(4), 25)))
    model = doubled(draw_model(generator, 3, 25, 100, 0.5))
    values = jax.numpy.asarray(mdp.continues * generator.normal(-20, 10, 25))
    chosen = variant(name)
    inputs = (doubled(coefficients(chosen)), model, values, problem, jax.random.key(0))
    ours, theirs = fast_gradients(*inputs), autodiff(chosen)(*inputs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-9 * np.abs(b).max())


def test_many_policies_at_once(generator):
    mdp = cliffwalk(0.6)
    policies = generator.dirichlet(np.ones(4), (5, 25))[[0, 1, 2, 1, 3, 4]]
    found = exact_values(mdp, policies)
    for values, policy in zip(found, policies, strict=True):
        np.testing.assert_allclose(values, policy_value(mdp, policy), rtol=1e-12)


def test_improvement_looks_ahead_with_the_model_or_the_environment():
    mdp = cliffwalk(1.0)
    problem, values = as_problem(mdp), jax.numpy.asarray(optimal_value(mdp), np.float32)
    flat = LowRank(np.zeros((1, 25), np.float32), np.zeros((1, 100), np.float32))
    right, entropy = improve(problem, flat, values, "environment")
    best = greedy_policy(action_values(mdp, optimal_value(mdp)))
    np.testing.assert_array_equal(right[: goal_cell()], best[: goal_cell()])
    np.testing.assert_allclose(entropy, np.log(25), rtol=1e-6)
    # A model without information leaves the immediate reward: only the cliff is avoided.
    by_model, _ = improve(problem, flat, values)
    assert int(by_model[start_cell()].argmax()) == UP
    assert int(by_model[15].argmax()) == UP
    assert not np.array_equal(by_model, right)


def small_block(name, rank=2, seeds=3, temp=0.99):
    sizes = Steps(*np.float32([0.01, 0.1, 1, 1]))
    mdp = cliffwalk(temp)
    task = Task(as_problem(mdp), coefficients(variant(name)), sizes, np.uint32(0))
    models = [draw_model(np.random.default_rng(s), rank, 25, 100) for s in range(seeds)]
    starts = stack([init_fit(model, 25) for model in models])
    return mdp, stack([task] * seeds), starts


def test_calibrated_control_reaches_the_optimum():
    mdp, tasks, start = small_block("cvaml-1-0")
    found = iterate_policies(fast_gradients, tasks, start, 12, 500)
    assert len(found) == 13
    first, last = exact_values(mdp, found[0].policy), exact_values(mdp, found[-1].policy)
    np.testing.assert_allclose(first[:, start_cell()], policy_value(mdp)[start_cell()])
    np.testing.assert_allclose(last[:, start_cell()], -5.807072472157, rtol=1e-9)
    # V is that of the evaluated policy, which no longer changes
    reached = mdp.continues.astype(bool) & ~cliff_cells()
    np.testing.assert_allclose(found[-1].values[:, reached], last[:, reached], atol=0.05)


def test_a_fresh_start_forgets_and_a_warm_one_does_not():
    """With the policy of iteration 1 already greedy, only a warm start trains on."""
    _, tasks, start = small_block("mle", rank=1, seeds=1)
    rule = fast_gradients
    warm = iterate_policies(rule, tasks, start, 2, 50)
    fresh = iterate_policies(rule, tasks, start, 2, 50, fresh=True)
    np.testing.assert_array_equal(warm[1].values, fresh[1].values)
    # The likelihood does not see the policy: fitted again from the same start it is the same.
    np.testing.assert_array_equal(fresh[2].entropy, fresh[1].entropy)
    assert (warm[2].entropy != warm[1].entropy).all()
