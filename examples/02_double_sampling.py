"""Two states, one bias: the sampled value-aware loss beside the double-sampling problem.

In a two-state MDP the next state is 0 or 1 with probability 1/2 and V = (0, 1).
Bellman residual minimisation squares *one environment sample*, so it also minimises the variance
of V over successors: it flattens the value. Sampled VAML squares *one model sample*, so it also
minimises the variance of V under the model: it flattens the model. The environment cannot be asked
twice from the same state; the model can, and that is the correction.

Run: python examples/02_double_sampling.py
"""

import jax
import jax.numpy as jnp

from cvaml import expected_vaml_loss

P = jnp.array([[0.6, 0.4], [0.4, 0.6]])  # the environment
REWARD = jnp.array([0.0, 1.0])
GAMMA = 0.9
TRUE_V = jnp.linalg.solve(jnp.eye(2) - GAMMA * P, REWARD)


def bellman_residual(values: jax.Array, double_sampling: bool) -> jax.Array:
    """E (V(x) - r - γ V(x'))² with one successor sample, or the product of two independent ones."""
    residual = values[:, None] - REWARD[:, None] - GAMMA * values[None, :]
    if double_sampling:
        return jnp.sum(jnp.sum(P * residual, axis=1) ** 2)
    return jnp.sum(P * residual**2)


def descend(loss, start: jax.Array, rate: float, steps: int) -> jax.Array:
    gradient = jax.grad(loss)
    return jax.lax.fori_loop(0, steps, lambda _, x: x - rate * gradient(x), start)


print(f"1. Learning the value from environment samples (true V = {TRUE_V[0]:.3f}, {TRUE_V[1]:.3f})")
for double in (False, True):
    v = descend(lambda v, d=double: bellman_residual(v, d), jnp.zeros(2), 0.05, 20_000)
    name = "two samples" if double else "one sample "
    print(f"   {name}: V = {v[0]:.3f}, {v[1]:.3f}   gap between the states {v[1] - v[0]:.3f}")
print(f"   the true gap is {TRUE_V[1] - TRUE_V[0]:.3f}")

print()
print("2. Learning the model of state 0 from model samples (true probability of state 1: 0.400)")
for k, correction in ((1, "none"), (4, "none"), (4, "unbiased")):

    def loss(logit, k=k, correction=correction):
        q = jax.nn.sigmoid(logit)
        return expected_vaml_loss(jnp.array([1 - q, q]), P[0], TRUE_V, k, correction)

    q = jax.nn.sigmoid(descend(loss, jnp.array(0.2), 0.5, 50_000))
    name = f"VAML, k = {k}" if correction == "none" else f"CVAML, k = {k}"
    error = GAMMA * (q - P[0, 1]) * (TRUE_V[1] - TRUE_V[0])
    print(f"   {name:12}: probability of state 1 {q:.3f}, error of T V {error:+.4f}")
print("   One sample makes the model deterministic; more samples shrink the bias as 1/(k-1);")
print("   the correction removes it.")
