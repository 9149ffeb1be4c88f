"""A loss of your own in the agent: the median of the samples' values instead of their mean.

A variant is a row of data. Anything called as `mb_vaml_loss` is can be its loss; the agent
supplies values of k model trajectories and the targets of the real states.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from cvaml import Variant
from cvaml.agent import population
from cvaml.agent.config import preset
from cvaml.agent.state import Spec


def median_loss(v_model, targets, weights=None, correction="none"):
    """Squared error of the median over the k samples, [k, m] against [m]."""
    weights = jnp.ones_like(targets) if weights is None else weights
    errors = jnp.square(jnp.median(v_model, axis=0) - jax.lax.stop_gradient(targets))
    return jnp.sum(weights * errors) / jnp.maximum(jnp.sum(weights), 1)


def main() -> None:
    mine = Variant("median-1-0", loss=median_loss, expected=None, k=5, applies_to=("agent",))
    config = replace(preset("small"), variant=mine, batch_size=32)
    spec, members = Spec(observation_size=2, action_size=1), 2
    keys = jax.random.split(jax.random.key(0), members)
    state = population.init_population(keys, config, spec)
    replay = population.init_replay(spec, members, 500)
    generator = np.random.default_rng(0)
    position = np.zeros((members, 2), np.float32)
    for step in range(200):  # a point on a line, paid for being near 0
        action = generator.uniform(-1, 1, (members, 1)).astype(np.float32)
        moved = np.clip(position + 0.2 * action, -1, 1)
        cut = np.full(members, step % 50 == 49)
        reward = -np.abs(moved[:, 0])
        replay = population.add(
            replay, position, action, reward, np.zeros(members, bool), cut, moved
        )
        position = np.zeros_like(moved) if cut[0] else moved
    for _ in range(5):
        state, metrics = population.update(state, replay, keys, config, n_updates=20)
        print({name: np.asarray(metrics[name]) for name in ("loss/vaml", "td_rmse")})
    action, _ = population.act(state, position, keys, config, explore=False)
    print("greedy actions", np.asarray(action).ravel())


if __name__ == "__main__":
    main()
