"""Policy iteration with a learned model: evaluate by fitting, improve greedily, repeat."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from cvaml.tabular.fit import FitState, Task, advance_block
from cvaml.tabular.lowrank import LowRank, kernel, log_kernel
from cvaml.tabular.mdp import FiniteMDP
from cvaml.tabular.objective import Problem, Rule

Improvement = Literal["model", "environment"]


class Iterate(NamedTuple):
    """One policy of each fit of a block, with what its evaluation left behind."""

    policy: Float[Any, "block n a"]
    """The policy, greedy in the evaluation before it; the first one is what the tasks hold."""
    values: Float[Any, "block n"]
    """V learned while the policy before it was evaluated; 0 for the first."""
    entropy: Float[Any, " block"]
    """Mean entropy of the model's rows after that evaluation, in nats."""


def iterate_policies(
    rule: Rule,
    tasks: Task,
    start: FitState,
    iterations: int,
    steps: int,
    fresh: bool = False,
    improvement: Improvement = "model",
    after: Callable[[], None] = lambda: None,
) -> list[Iterate]:
    r"""Model-based policy iteration of a block of fits.

    An iteration trains model and V for `steps` steps under the current policy, then takes
    $\pi'(x) = \arg\max_a r(x, a) + \gamma \mathbb{E}_{\hat p(\cdot \mid x, a)} V$.

    Args:
        rule: where the gradients come from.
        tasks: problem, first policy, variant and step sizes of each fit, with a leading axis.
        start: drawn models and V = 0, with the same leading axis.
        iterations: number of improvements.
        steps: training steps of one evaluation.
        fresh: whether every evaluation begins at `start` again; otherwise model, V and moments
            carry over.
        improvement: whether the greedy step looks ahead with the model or with the true kernel.
        after: called after each iteration.

    Returns:
        `iterations + 1` policies, the first one among them.
    """
    found = [_first(tasks, start)]
    state = start
    for _ in range(iterations):
        state, _ = advance_block(rule, tasks, start if fresh else state, steps)
        policy, entropy = improve_block(tasks.problem, state.model, state.values, improvement)
        found.append(jax.device_get(Iterate(policy, state.values, entropy)))
        tasks = tasks._replace(problem=tasks.problem._replace(policy=policy))
        after()
    return found


def improve(
    problem: Problem,
    model: LowRank,
    values: Float[Array, " n"],
    improvement: Improvement = "model",
) -> tuple[Float[Array, "n a"], Float[Array, ""]]:
    """The policy that is greedy under a model and a value, and the model's mean entropy.

    Args:
        problem: rewards and discount; its policy gives the shape only.
        model: the learned kernel.
        values: V of each state.
        improvement: `"environment"` looks ahead with the true kernel instead.

    Returns:
        The first best action of each state with probability 1, and nats per row.
    """
    p = kernel(model)
    ahead = (p if improvement == "model" else problem.kernel) @ values
    q = (problem.rewards + problem.discount * ahead).reshape(problem.policy.shape)
    policy = jax.nn.one_hot(jnp.argmax(q, axis=1), q.shape[1], dtype=q.dtype)
    return policy, -jnp.mean(jnp.sum(p * log_kernel(model), axis=1))


@partial(jax.jit, static_argnames="improvement")
def improve_block(
    problems: Problem,
    models: LowRank,
    values: Float[Array, "block n"],
    improvement: Improvement = "model",
) -> tuple[Float[Array, "block n a"], Float[Array, " block"]]:
    """`improve` for a block of fits: every array has a leading axis."""
    return jax.vmap(lambda problem, model, v: improve(problem, model, v, improvement))(
        problems, models, values
    )


def exact_values(
    mdp: FiniteMDP, policies: Float[np.ndarray, "many n a"]
) -> Float[np.ndarray, "many n"]:
    """`policy_value` of many policies at once, in float64; equal policies are solved once.

    Args:
        mdp: the problem.
        policies: probability of each action.
    """
    flat = policies.astype(np.float64).reshape(len(policies), -1)
    kinds, which = np.unique(flat, axis=0, return_inverse=True)
    own = kinds.reshape(-1, mdp.states, mdp.actions)
    which_kind: Int[np.ndarray, " many"] = which.reshape(-1)
    ahead = np.einsum("kxa,xay->kxy", own, mdp.transitions)
    rewards = np.einsum("kxa,xa->kx", own, mdp.rewards) * mdp.continues[None, :]
    ongoing = mdp.discount * mdp.continues[None, :, None] * ahead
    solved = np.linalg.solve(np.eye(mdp.states)[None] - ongoing, rewards[:, :, None])
    return np.asarray(solved[which_kind, :, 0])


def _first(tasks: Task, start: FitState) -> Iterate:
    """The policy before any evaluation, with the entropy of the drawn models."""
    _, entropy = improve_block(tasks.problem, start.model, start.values)
    return Iterate(np.asarray(tasks.problem.policy), np.asarray(start.values), np.asarray(entropy))
