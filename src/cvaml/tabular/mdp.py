"""Finite Markov decision processes and their exact values, in float64."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from cvaml.types import UserError


class FiniteMDP(NamedTuple):
    """A finite MDP with n states and a actions."""

    transitions: Float[np.ndarray, "n a n"]
    """Probability of each next state."""
    rewards: Float[np.ndarray, "n a"]
    """Expected reward of each action."""
    discount: float
    """The discount γ, from 0 to below 1."""
    terminal: Bool[np.ndarray, " n"] | None = None
    """States of value 0 whatever happens in them; None if there are none."""

    @property
    def states(self) -> int:
        """Number of states."""
        return int(self.transitions.shape[0])

    @property
    def actions(self) -> int:
        """Number of actions."""
        return int(self.transitions.shape[1])

    @property
    def continues(self) -> Float[np.ndarray, " n"]:
        """1 for an ordinary state, 0 for a terminal one."""
        ends = np.zeros(self.states) if self.terminal is None else self.terminal
        return 1.0 - ends


def check_mdp(mdp: FiniteMDP) -> None:
    """Raises UserError unless the rows are distributions and the discount is in [0, 1)."""
    rows = mdp.transitions.sum(axis=2)
    if mdp.transitions.min() < 0 or not np.allclose(rows, 1, atol=1e-9):
        raise UserError("the transitions of a finite MDP must be distributions over next states")
    if not 0 <= mdp.discount < 1:
        raise UserError(f"the discount must be at least 0 and below 1, got {mdp.discount}")


def uniform_policy(mdp: FiniteMDP) -> Float[np.ndarray, "n a"]:
    """Every action with the same probability."""
    return np.full((mdp.states, mdp.actions), 1 / mdp.actions)


def action_values(
    mdp: FiniteMDP,
    values: Float[np.ndarray, " n"],
    kernel: Float[np.ndarray, "n a n"] | None = None,
) -> Float[np.ndarray, "n a"]:
    """One backup: `r + γ E V` of every action.

    Args:
        mdp: the problem.
        values: V of each state.
        kernel: a model's transitions in place of the true ones.

    Returns:
        Q of each state and action, 0 in terminal states.
    """
    ahead = (mdp.transitions if kernel is None else kernel) @ values
    return np.asarray((mdp.rewards + mdp.discount * ahead) * mdp.continues[:, None])


def greedy_policy(q: Float[np.ndarray, "n a"]) -> Float[np.ndarray, "n a"]:
    """The deterministic policy of the first best action of each state."""
    best: Int[np.ndarray, " n"] = np.argmax(q, axis=1)
    return np.asarray(np.eye(q.shape[1])[best])


def policy_value(
    mdp: FiniteMDP, policy: Float[np.ndarray, "n a"] | None = None
) -> Float[np.ndarray, " n"]:
    r"""The exact value of a policy: $V^\pi = (I - \gamma P_\pi)^{-1} r_\pi$.

    Args:
        mdp: the problem.
        policy: probability of each action; uniform when not given.

    Returns:
        V of each state in float64, 0 in terminal states.
    """
    policy = uniform_policy(mdp) if policy is None else policy
    kernel = np.einsum("xa,xay->xy", policy, mdp.transitions)
    rewards = np.einsum("xa,xa->x", policy, mdp.rewards) * mdp.continues
    ongoing = mdp.discount * mdp.continues[:, None] * kernel
    return np.linalg.solve(np.eye(mdp.states) - ongoing, rewards)


def optimal_value(mdp: FiniteMDP) -> Float[np.ndarray, " n"]:
    """The value of an optimal policy, by policy iteration from the uniform policy.

    An improvement smaller than rounding does not change the policy, so the loop ends.
    """
    policy = greedy_policy(action_values(mdp, policy_value(mdp)))
    while True:
        values = policy_value(mdp, policy)
        q = action_values(mdp, values)
        better = q.max(axis=1) > values + 1e-10 * (1 + np.abs(values))
        if not better.any():
            return values
        policy = np.where(better[:, None], greedy_policy(q), policy)
