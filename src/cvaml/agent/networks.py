"""The networks: encoder, latent model, twin critic and actor, on arrays with any leading axes.

Inputs that join a latent state and an action pass through two products that are added, so that
inside a `vmap` over candidate actions the product with the state is computed once.
"""

from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from cvaml.agent.config import AgentConfig, NetworkConfig
from cvaml.losses import hl_gauss_decode, hl_gauss_encode


def products(precision: str) -> AbstractContextManager[Any]:
    """Sets the arithmetic of float32 products inside: exact if it is "float32", TF32 otherwise."""
    context: AbstractContextManager[Any] = jax.default_matmul_precision(
        "highest" if precision == "float32" else "tensorfloat32"
    )
    return context


def product(x: Float[Array, "*n i"], weight: Float[Array, "i o"]) -> Float[Array, "*n o"]:
    """A product with float32 sums, its inputs rounded to the weight's type."""
    return jnp.matmul(x.astype(weight.dtype), weight, preferred_element_type=jnp.float32)


class Linear(eqx.Module):
    """An affine map of the last axis."""

    weight: Float[Array, "i o"]
    bias: Float[Array, " o"]

    def __call__(self, x: Float[Array, "*n i"]) -> Float[Array, "*n o"]:
        """Applies the map."""
        y = product(x, self.weight)
        return y + jnp.broadcast_to(self.bias, y.shape)


class Layer(eqx.Module):
    """A linear map, LayerNorm and Mish; optionally with the action as a second input."""

    linear: Linear
    action: Float[Array, "a o"] | None
    scale: Float[Array, " o"]
    shift: Float[Array, " o"]

    def __call__(
        self, x: Float[Array, "*n i"], action: Float[Array, "*k a"] | None = None
    ) -> Float[Array, "*l o"]:
        """The activations; `x` and `action` broadcast against each other."""
        y = self.linear(x)
        if action is not None and self.action is not None:
            y = _add(y, product(action, self.action))
        return mish(_affine(standardise(y), self.scale, self.shift))


class Prediction(NamedTuple):
    """One step of the latent model."""

    mean: Float[Array, "*n d"]
    """Mean of the next latent state, normalised as encodings are."""
    log_std: Float[Array, "*n d"]
    """Log standard deviation; unused by a deterministic model."""
    reward: Float[Array, "*n"]
    """Predicted reward."""
    continues: Float[Array, "*n"]
    """Logit of the probability that the episode does not terminate."""
    raw_log_std: Float[Array, "*n d"]
    """The log-std head's output before its sigmoid."""


class Encoder(eqx.Module):
    """Observation to latent state."""

    hidden: Layer
    out: Linear
    norm: str = eqx.field(static=True)
    group: int = eqx.field(static=True)

    def __call__(self, observation: Float[Array, "*n o"]) -> Float[Array, "*n d"]:
        """The latent state."""
        z = standardise(self.out(self.hidden(observation)))
        return latent_norm(z, self.norm, self.group)


class Dynamics(eqx.Module):
    """Latent state and action to the next latent state's distribution, reward and end."""

    first: Layer
    second: Layer
    mean: Linear
    log_std: Linear
    outcome_hidden: Layer
    outcome: Linear
    norm: str = eqx.field(static=True)
    group: int = eqx.field(static=True)
    bounds: tuple[float, float] = eqx.field(static=True)

    def __call__(self, z: Float[Array, "*n d"], action: Float[Array, "*k a"]) -> Prediction:
        """The prediction; `z` and `action` broadcast against each other."""
        hidden = self.second(self.first(z, action))
        outcome = self.outcome(self.outcome_hidden(hidden))
        raw = self.log_std(hidden)
        low, high = self.bounds
        return Prediction(
            mean=latent_norm(self.mean(hidden), self.norm, self.group),
            log_std=low + (high - low) * jax.nn.sigmoid(raw),
            reward=outcome[..., 0],
            continues=outcome[..., 1],
            raw_log_std=raw,
        )


class Critic(eqx.Module):
    """Latent state and action to value logits, or to one number in raw units."""

    first: Layer
    second: Layer
    out: Linear

    def __call__(
        self, z: Float[Array, "*n d"], action: Float[Array, "*k a"]
    ) -> Float[Array, "*l v"]:
        """The outputs; `z` and `action` broadcast against each other."""
        return self.out(self.second(self.first(z, action)))


class Actor(eqx.Module):
    """Latent state to the action before its tanh."""

    first: Layer
    second: Layer
    out: Linear

    def __call__(self, z: Float[Array, "*n d"]) -> Float[Array, "*n a"]:
        """The pre-tanh action."""
        return self.out(self.second(self.first(z)))


class ValueHead(eqx.Module):
    """How a critic's outputs stand for a value: bins even in symlog(value), or the number itself.

    The read-out of the bins is the mean of their centres in raw units, hence linear, as the
    correction requires; only the place of the bins is logarithmic.
    """

    bins: int = eqx.field(static=True)
    limit: float = eqx.field(static=True)

    @classmethod
    def of(cls, config: NetworkConfig) -> "ValueHead":
        """The head of a configuration; a scalar head has no bins."""
        return cls(config.bins if config.critic_head == "hl_gauss" else 0, config.value_limit)

    @property
    def size(self) -> int:
        """Outputs of a critic."""
        return self.bins or 1

    @property
    def even_edges(self) -> Float[np.ndarray, " e"]:
        """Edges in symlog(value); numbers of NumPy's, hence constants of a program."""
        limit = np.log1p(self.limit)
        return np.asarray(np.linspace(-limit, limit, self.bins + 1))

    @property
    def edges(self) -> Float[np.ndarray, " e"]:
        """Edges in raw units."""
        even = self.even_edges
        return np.asarray(np.sign(even) * np.expm1(np.abs(even)))

    def decode(self, outputs: Float[Array, "*n v"]) -> Float[Array, "*n"]:
        """The value."""
        if not self.bins:
            return outputs[..., 0]
        probabilities = jax.nn.softmax(outputs)
        flat = probabilities.reshape(-1, self.bins)
        values = jax.vmap(hl_gauss_decode, in_axes=(0, None))(flat, _float32(self.edges))
        return values.reshape(outputs.shape[:-1])

    def encode(self, value: Float[Array, " n"]) -> Float[Array, "n v"]:
        """Target probabilities whose mean is the value.

        A Gaussian that is even in symlog(value) has a mean further out than the value, by about
        0.1 %; bootstrapping would multiply that by 1/(1 - discount), so one correction step
        moves its centre until the decoded mean is the value.
        """
        sigma = 0.75 * 2 * float(np.log1p(self.limit)) / self.bins
        spread = jax.vmap(hl_gauss_encode, in_axes=(0, None, None))
        decode = jax.vmap(hl_gauss_decode, in_axes=(0, None))
        edges, raw = _float32(self.even_edges), _float32(self.edges)
        excess = decode(spread(symlog(value), edges, sigma), raw) - value
        return spread(symlog(value - excess), edges, sigma)

    def loss(
        self, outputs: Float[Array, "n v"], target: Float[Array, " n"], scale: Float[Array, ""]
    ) -> Float[Array, " n"]:
        """Cross-entropy to the encoded target, or the squared error in units of `scale`."""
        target = jax.lax.stop_gradient(target)
        if not self.bins:
            return jnp.square((outputs[:, 0] - target) / scale)
        return -jnp.sum(self.encode(target) * jax.nn.log_softmax(outputs), axis=-1)


class Networks(eqx.Module):
    """Everything the gradient reaches; the two critics are stacked on a leading axis."""

    encoder: Encoder
    dynamics: Dynamics
    critics: Critic
    actor: Actor


def with_half_products(networks: Networks) -> Networks:
    """The same networks with float16 weights: products round their inputs, and nothing else is.

    Ten bits behind the leading one, as TF32 has, at twice its speed; activations behind a
    LayerNorm are far from the range's end.
    """

    def half(path: tuple[Any, ...], leaf: Array) -> Array:
        return leaf.astype(jnp.float16) if path[-1].name in ("weight", "action") else leaf

    found: Networks = jax.tree_util.tree_map_with_path(half, networks)
    return found


class _Draws:
    """Uniform numbers handed out in order from a single draw, which compiles once."""

    def __init__(self, key: PRNGKeyArray, size: int) -> None:
        self._numbers = jax.random.uniform(key, (size,), minval=-1.0)
        self._used = 0

    def take(self, *shape: int) -> Float[Array, "*s"]:
        """The next numbers, in [-1, 1)."""
        start, self._used = self._used, self._used + int(np.prod(shape))
        return self._numbers[start : self._used].reshape(shape)

    def linear(self, inputs: int, outputs: int, scale: float = 1.0) -> Linear:
        """Weights and biases uniform in ±scale/sqrt(inputs)."""
        bound = scale / float(np.sqrt(inputs))
        return Linear(bound * self.take(inputs, outputs), bound * self.take(outputs))

    def layer(self, inputs: int, outputs: int, actions: int = 0) -> Layer:
        """A layer whose weights are scaled by the joint number of inputs."""
        joint = self.linear(inputs + actions, outputs)
        return Layer(
            linear=Linear(joint.weight[:inputs], joint.bias),
            action=joint.weight[inputs:] if actions else None,
            scale=jnp.ones(outputs),
            shift=jnp.zeros(outputs),
        )


def init_networks(
    key: PRNGKeyArray, config: AgentConfig, observation_size: int, action_size: int
) -> Networks:
    """Fresh networks.

    Weights are uniform in ±1/sqrt(inputs). Reward and critic heads start at weight 0, so every
    value starts at exactly 0; the actor's head starts small, far from saturation.
    """
    net = config.network
    width, latent = net.width, net.latent
    widest = max(width, latent, observation_size) + action_size
    draws = _Draws(key, 14 * (widest + 1) * max(width, latent, net.bins))
    norm, group = net.latent_norm, net.simnorm_size
    log_std = draws.linear(width, latent, 0.1)
    log_std = Linear(log_std.weight, jnp.full(latent, np.float32(net.raw_log_std_init)))
    critics = [_critic(draws, net, action_size) for _ in range(2)]
    return Networks(
        encoder=Encoder(
            draws.layer(observation_size, width), draws.linear(width, latent), norm, group
        ),
        dynamics=Dynamics(
            first=draws.layer(latent, width, action_size),
            second=draws.layer(width, width),
            mean=draws.linear(width, latent),
            log_std=log_std,
            outcome_hidden=draws.layer(width, width),
            # Reward 0, and termination so unlikely that no value is discounted by it.
            outcome=Linear(draws.linear(width, 2, 0.0).weight, jnp.array([0.0, 6.0])),
            norm=norm,
            group=group,
            bounds=(net.log_std_min, net.log_std_max),
        ),
        critics=jax.tree.map(lambda *both: jnp.stack(both), *critics),
        actor=Actor(
            draws.layer(latent, width),
            draws.layer(width, width),
            draws.linear(width, action_size, 0.1),
        ),
    )


@jax.custom_vjp
def standardise(x: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
    """Zero mean and unit variance over the last axis."""
    return _standardise(x)[0]


def _standardise(x: Float[Array, "*n d"]) -> tuple[Float[Array, "*n d"], Float[Array, "*n 1"]]:
    x = x - jnp.mean(x, axis=-1, keepdims=True)
    inverse = jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + 1e-5)
    return x * inverse, inverse


def _standardise_forward(x: Float[Array, "*n d"]) -> tuple[Array, tuple[Array, Array]]:
    y, inverse = _standardise(x)
    return y, (y, inverse)


def _standardise_backward(
    residuals: tuple[Array, Array], g: Float[Array, "*n d"]
) -> tuple[Float[Array, "*n d"]]:
    """The closed form: half the passes over memory that differentiating the statistics takes."""
    y, inverse = residuals
    along = y * jnp.mean(g * y, axis=-1, keepdims=True)
    return (inverse * (g - jnp.mean(g, axis=-1, keepdims=True) - along),)


standardise.defvjp(_standardise_forward, _standardise_backward)


def mish(x: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """x · tanh(softplus(x)), with one exponential."""
    e = jnp.exp(jnp.minimum(x, 20.0))
    n = e * (e + 2)
    return x * n / (n + 2)


def latent_norm(z: Float[Array, "*n d"], kind: str, group: int) -> Float[Array, "*n d"]:
    """Softmax over groups of the latent state (simnorm), LayerNorm, or nothing."""
    if kind == "simnorm":
        return jax.nn.softmax(z.reshape(*z.shape[:-1], z.shape[-1] // group, group)).reshape(
            z.shape
        )
    return standardise(z) if kind == "layernorm" else z


def symlog(x: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """sign(x) · log(1 + |x|)."""
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))


def _float32(x: Float[np.ndarray, "*n"]) -> Float[Array, "*n"]:
    return jnp.asarray(x, jnp.float32)


def _add(x: Float[Array, "*n o"], y: Float[Array, "*k o"]) -> Float[Array, "*l o"]:
    """Sum of two arrays whose leading axes broadcast."""
    shape = jnp.broadcast_shapes(x.shape, y.shape)
    return jnp.broadcast_to(x, shape) + jnp.broadcast_to(y, shape)


def _affine(
    x: Float[Array, "*n o"], scale: Float[Array, " o"], shift: Float[Array, " o"]
) -> Float[Array, "*n o"]:
    return x * jnp.broadcast_to(scale, x.shape) + jnp.broadcast_to(shift, x.shape)


def _critic(draws: _Draws, net: NetworkConfig, actions: int) -> Critic:
    head = ValueHead.of(net)
    first, second = draws.layer(net.latent, net.width, actions), draws.layer(net.width, net.width)
    out = draws.linear(net.width, head.size, 0.0)
    if head.bins:
        # All mass near zero: the histogram of the value 0, with a floor that keeps every bin
        # within reach of the gradient. The support is symmetric, so the floor decodes to 0.
        zero = jnp.log(head.encode(jnp.zeros(1))[0] + float(np.exp(-net.value_prior)))
        out = Linear(out.weight, zero)
    return Critic(first, second, out)
