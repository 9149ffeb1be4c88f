"""Exact values against hand-worked chains."""

import numpy as np
import pytest

from cvaml.tabular.garnet import draw_garnet, garnet_mdp
from cvaml.tabular.mdp import (
    FiniteMDP,
    action_values,
    check_mdp,
    greedy_policy,
    optimal_value,
    policy_value,
)
from cvaml.types import UserError


def two_states(discount=0.5):
    """State 0 may stay (reward 0) or leave for state 1 (reward 1), which pays 2 forever."""
    transitions = np.zeros((2, 2, 2))
    transitions[0, 0, 0] = transitions[0, 1, 1] = transitions[1, :, 1] = 1
    return FiniteMDP(transitions, np.array([[0.0, 1.0], [2.0, 2.0]]), discount)


def test_policy_value_by_hand():
    # V(1) = 2 / (1 - 0.5) = 4; uniform V(0) = 0.5 (0 + 0.5 V(0)) + 0.5 (1 + 0.5 * 4) = 2
    np.testing.assert_allclose(policy_value(two_states()), [2, 4])
    stay = np.array([[1.0, 0.0], [1.0, 0.0]])
    np.testing.assert_allclose(policy_value(two_states(), stay), [0, 4])


def test_optimal_value_by_hand():
    np.testing.assert_allclose(optimal_value(two_states()), [3, 4])
    q = action_values(two_states(), np.array([3.0, 4.0]))
    np.testing.assert_allclose(q, [[1.5, 3], [4, 4]])
    np.testing.assert_allclose(greedy_policy(q), [[0, 1], [1, 0]])


def test_discount_zero_gives_the_reward():
    np.testing.assert_allclose(policy_value(two_states(0.0)), [0.5, 2])


def test_terminal_states_are_worth_nothing():
    mdp = two_states()._replace(terminal=np.array([False, True]))
    np.testing.assert_allclose(optimal_value(mdp), [1, 0])


def test_bad_mdps_are_refused():
    with pytest.raises(UserError, match=r"below 1, got 1.0"):
        check_mdp(two_states(1.0))
    mdp = two_states()
    with pytest.raises(UserError, match="distributions"):
        check_mdp(mdp._replace(transitions=2 * mdp.transitions))


def test_garnet_is_what_the_paper_describes():
    garnet = draw_garnet(seed=3, problem=7)
    assert all(len(set(row)) == 10 for row in garnet.successors)
    mdp = garnet_mdp(garnet, 0.5)
    check_mdp(mdp)
    assert np.count_nonzero(mdp.transitions) == 500
    row = mdp.transitions[4, 0]
    chosen = garnet.successors[4]
    # Ratios of probabilities are exp of the differences of the weights over the temperature.
    ratio = row[chosen[0]] / row[chosen[1]]
    wanted = np.exp((garnet.weights[4, 0] - garnet.weights[4, 1]) / 0.5)
    np.testing.assert_allclose(ratio, wanted)


def test_garnet_limits_of_the_temperature():
    garnet = draw_garnet(seed=0, problem=0)
    cold = garnet_mdp(garnet, 1e-3).transitions[:, 0]
    heaviest = garnet.successors[np.arange(50), garnet.weights.argmax(axis=1)]
    assert (cold.argmax(axis=1) == heaviest).all()
    warm = garnet_mdp(garnet, 1e6).transitions[:, 0]
    np.testing.assert_allclose(warm[warm > 0], 0.1, atol=1e-6)


def test_a_problem_depends_on_its_number_and_seed_only():
    first, again = draw_garnet(0, 5), draw_garnet(0, 5)
    other, reseeded = draw_garnet(0, 6), draw_garnet(1, 5)
    np.testing.assert_array_equal(first.weights, again.weights)
    assert not np.array_equal(first.weights, other.weights)
    assert not np.array_equal(first.weights, reseeded.weights)


@pytest.mark.parametrize("temperature", [0.0, -1.0, np.inf, np.nan])
def test_a_bad_temperature_is_refused(temperature):
    with pytest.raises(UserError, match="temperature"):
        garnet_mdp(draw_garnet(0, 0), temperature)


def test_more_successors_than_states_are_refused():
    with pytest.raises(UserError, match="from 1 to the number of states 5, got 6"):
        draw_garnet(0, 0, states=5, successors=6)
