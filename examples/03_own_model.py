"""The loss in your own Equinox model: a Gaussian model of a noisy system.

The system is x' = 0.8 x + a + 0.6 ε and the value function is V(x) = x² (known here, so that the
answer is too). A model N(μ(x, a), σ²) is value-equivalent when μ² + σ² = (0.8 x + a)² + 0.36.
VAML with k samples adds Var(x̂²)/k to the loss and loses spread; CVAML does not.

Run: python examples/03_own_model.py
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from cvaml import cvaml_loss, gaussian_nll, vaml_loss

K, BATCH, STEPS = 4, 256, 1500


class GaussianModel(eqx.Module):
    body: eqx.nn.MLP

    def __init__(self, key: jax.Array) -> None:
        self.body = eqx.nn.MLP(in_size=2, out_size=2, width_size=32, depth=2, key=key)

    def __call__(self, x: jax.Array, a: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean, log_std = self.body(jnp.stack([x, a]))
        return mean, jnp.clip(log_std, -4.0, 1.0)

    def sample(self, x: jax.Array, a: jax.Array, noise: jax.Array) -> jax.Array:
        mean, log_std = self(x, a)
        return mean + jnp.exp(log_std) * noise  # reparameterised: the loss reaches σ


def value(x: jax.Array) -> jax.Array:
    return x**2


def model_loss(model, x, a, x_next, noise, value_aware, nll_weight):
    samples = jax.vmap(jax.vmap(model.sample, in_axes=(None, None, 0)))(x, a, noise)
    mean, log_std = jax.vmap(model)(x, a)
    nll = jax.vmap(gaussian_nll)(mean[:, None], log_std[:, None], x_next[:, None])
    return (jax.vmap(value_aware)(value(samples), value(x_next)) + nll_weight * nll).mean()


@eqx.filter_jit
def train(key, value_aware, nll_weight=0.01):
    key, model_key = jax.random.split(key)
    model = GaussianModel(model_key)
    parameters, static = eqx.partition(model, eqx.is_array)
    optimiser = optax.adam(optax.cosine_decay_schedule(3e-3, STEPS))

    def step(carry, step_key):
        parameters, state = carry
        keys = jax.random.split(step_key, 4)
        x, a, wind = (jax.random.normal(k, (BATCH,)) for k in keys[:3])
        noise = jax.random.normal(keys[3], (BATCH, K))
        x_next = 0.8 * x + a + 0.6 * wind
        gradient = jax.grad(
            lambda p: model_loss(
                eqx.combine(p, static), x, a, x_next, noise, value_aware, nll_weight
            )
        )(parameters)
        updates, state = optimiser.update(gradient, state)
        return (optax.apply_updates(parameters, updates), state), None

    carry = (parameters, optimiser.init(parameters))
    (parameters, _), _ = jax.lax.scan(step, carry, jax.random.split(key, STEPS))
    return eqx.combine(parameters, static)


x, a = jax.random.uniform(jax.random.key(9), (2, 2000), minval=-1.5, maxval=1.5)
truth = (0.8 * x + a) ** 2 + 0.36
for name, loss in (("VAML", vaml_loss), ("CVAML", cvaml_loss)):
    model = train(jax.random.key(0), loss)
    mean, log_std = jax.vmap(model)(x, a)
    error = mean**2 + jnp.exp(2 * log_std) - truth
    print(f"{name:5} k = {K}: σ {jnp.exp(log_std).mean():.2f} (true 0.60), "
          f"value error {jnp.abs(error).mean():.3f}, bias {error.mean():+.3f}")  # fmt: skip
