"""Garnet problems: random sparse Markov chains whose temperature sets how random they are."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from cvaml.tabular.mdp import FiniteMDP
from cvaml.types import UserError


class Garnet(NamedTuple):
    """What is drawn at random for one problem, the same for every temperature."""

    successors: Int[np.ndarray, "n s"]
    """The s distinct possible next states of each state."""
    weights: Float[np.ndarray, "n s"]
    """Standard normal weight ω of each successor."""
    rewards: Float[np.ndarray, " n"]
    """Standard normal reward of each state."""


def draw_garnet(seed: int, problem: int, states: int = 50, successors: int = 10) -> Garnet:
    """Draws problem number `problem` of a seed.

    A problem depends on its own number only: it is the same in a study of any size.

    Args:
        seed: seed of the study.
        problem: number of the problem, from 0.
        states: number of states n.
        successors: number of distinct successors of each state, a self-loop allowed.

    Raises:
        UserError: there are fewer than one, or more successors than states.
    """
    check_sizes(states, successors)
    generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0, problem)))
    chosen = np.stack([generator.choice(states, successors, replace=False) for _ in range(states)])
    return Garnet(
        chosen, generator.standard_normal((states, successors)), generator.standard_normal(states)
    )


def garnet_mdp(garnet: Garnet, temperature: float, discount: float = 0.9) -> FiniteMDP:
    r"""The Markov chain of a Garnet problem at a temperature, as an MDP with one action.

    $$p(x_i \mid x_l) \propto e^{\omega_{il}/\tau}$$ over the successors of $x_l$, exactly 0
    elsewhere: deterministic as τ → 0, uniform over the successors as τ → ∞.

    Args:
        garnet: the random draw.
        temperature: τ > 0.
        discount: γ.
    """
    check_temperature(temperature)
    scaled = garnet.weights / temperature
    mass = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    states = garnet.rewards.size
    kernel = np.zeros((states, states))
    np.put_along_axis(kernel, garnet.successors, mass / mass.sum(axis=1, keepdims=True), axis=1)
    return FiniteMDP(kernel[:, None, :], garnet.rewards[:, None], discount)


def check_sizes(states: int, successors: int) -> None:
    """Raises UserError unless 1 <= successors <= states."""
    if not 1 <= successors <= states:
        raise UserError(
            f"successors must be from 1 to the number of states {states}, got {successors}"
        )


def check_temperature(temperature: float) -> None:
    """Raises UserError unless the temperature is positive and finite."""
    if not (0 < temperature < np.inf):
        raise UserError(f"a temperature must be positive and finite, got {temperature}")
