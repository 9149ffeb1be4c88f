"""Small problems shared by the tabular tests."""

import jax
import jax.numpy as jnp
import numpy as np

from cvaml.losses import variant
from cvaml.tabular.fit import Steps, Task, init_fit
from cvaml.tabular.garnet import draw_garnet, garnet_mdp
from cvaml.tabular.lowrank import draw_model
from cvaml.tabular.mdp import FiniteMDP
from cvaml.tabular.objective import as_problem, coefficients


def stack(trees):
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def random_mdp(generator, states=6, actions=3, discount=0.9, terminal=None):
    transitions = generator.dirichlet(np.full(states, 0.5), (states, actions))
    return FiniteMDP(transitions, generator.standard_normal((states, actions)), discount, terminal)


def doubled(tree):
    """The tree in float64; double precision must be on."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), tree)


def garnet_task(name, k=None, problem=0, temperature=1.0, discount=0.9, model_step=1e-3, **steps):
    """A task of the study's size for one variant, and its MDP."""
    mdp = garnet_mdp(draw_garnet(0, problem), temperature, discount)
    sizes = Steps(
        np.float32(model_step),
        np.float32(steps.get("value_step", 0.1)),
        np.float32(steps.get("final", 1.0)),
        np.float32(steps.get("total", 10_000)),
    )
    return Task(as_problem(mdp), coefficients(variant(name, k)), sizes, np.uint32(problem)), mdp


def garnet_start(rank, problem=0, states=50, spread=0.01):
    return init_fit(
        draw_model(np.random.default_rng(problem), rank, states, states, spread), states
    )
