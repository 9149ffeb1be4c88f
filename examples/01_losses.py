"""The losses alone: k model samples per state against one target, and what the correction does.

Run: python examples/01_losses.py
"""

import jax
import jax.numpy as jnp

from cvaml import calibration_report, cvaml_loss, td_loss, value_targets, vaml_loss

key_model, key_real = jax.random.split(jax.random.key(0))
batch, k = 4096, 4

# The model predicts the right mean value, 1.0, but its samples spread around it.
v_samples = 1.0 + 2.0 * jax.random.normal(key_model, (batch, k))
targets = 1.0 + 0.1 * jax.random.normal(key_real, (batch,))

# Losses are written for one state; vmap makes the batch.
plain = jax.vmap(vaml_loss)(v_samples, targets).mean()
calibrated = jax.vmap(cvaml_loss)(v_samples, targets).mean()
print(f"(v̄ - y)², uncorrected:   {plain:.3f}   (true error 0, variance of the mean 4/4 = 1)")
print(f"calibrated, U-statistic:  {calibrated:.3f}   (what remains is the targets' own variance)")

# Which way does each loss push the spread of the samples?
noise = jax.random.normal(key_model, (batch, k))


def loss_of_spread(spread: jax.Array, loss) -> jax.Array:
    return jax.vmap(loss)(1.0 + spread * noise, targets).mean()


for name, loss in (("vaml", vaml_loss), ("cvaml", cvaml_loss)):
    slope = jax.grad(loss_of_spread)(jnp.array(2.0), loss)
    print(f"d loss / d spread, {name:5}: {slope:+.3f}")
print("VAML shrinks the spread although the mean is right; CVAML leaves it alone.")

# The diagnosis, on any batch of your own agent.
print()
print(calibration_report(v_samples, targets))

# The value itself is learned by an ordinary TD loss on b-step targets.
rewards, discounts = jnp.array([1.0, 0.0, 2.0]), jnp.array([0.9, 0.9, 0.0])  # terminates
values = jnp.array([0.0, 1.0, 2.0, 100.0])
print()
print("2-step targets:", value_targets(rewards, discounts, values, b=2))
print("TD loss of V(x) = 2:", td_loss(2.0, rewards[:2], discounts[:2], values[2]))
