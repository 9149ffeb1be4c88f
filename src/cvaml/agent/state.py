"""One member's learning state, a pytree; `population` stacks it over members."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PRNGKeyArray

from cvaml.agent.config import AgentConfig
from cvaml.agent.networks import Critic, Networks, init_networks
from cvaml.types import UserError

Tree = TypeVar("Tree")


class Spec(NamedTuple):
    """Sizes of the environment's flat observation and action."""

    observation_size: int
    action_size: int


class MemberSettings(eqx.Module):
    """Scalars that may differ between members of one population, as data rather than code."""

    vaml: Float[Array, ""]
    """Coefficient of the value-aware loss."""
    aux: Float[Array, ""]
    """Coefficient of the auxiliary loss."""
    reward: Float[Array, ""]
    """Coefficient of the reward loss."""
    critic: Float[Array, ""]
    """Coefficient of the critics' TD loss."""
    correction: Float[Array, ""]
    """Factor of the variance correction."""
    spread: Float[Array, ""]
    """Weight of the penalty on encodings that shrink."""
    sigma_pull: Float[Array, ""]
    """Weight of the pull of σ towards its start."""
    pre_tanh: Float[Array, ""]
    """Weight of the actor's pre-tanh penalty."""
    learning_rate: Float[Array, ""]
    """Factor of all learning rates."""
    polyak: Float[Array, ""]
    """Step of the target critics."""
    exploration_noise: Float[Array, ""]
    """Least standard deviation of the noise on actions while exploring."""
    exploration_period: Float[Array, ""]
    """Agent steps over which that noise turns into other noise."""
    pessimism: Float[Array, ""]
    """Half differences of the target critics that a bootstrap lies below their mean."""


class Moments(eqx.Module):
    """Running mean and variance: exact at first, then forgetting with rate 0.001."""

    mean: Float[Array, "*s"]
    variance: Float[Array, "*s"]
    count: Float[Array, ""]

    @classmethod
    def start(cls, shape: tuple[int, ...] = ()) -> "Moments":
        """Mean 0, variance 1, no data."""
        return cls(jnp.zeros(shape), jnp.ones(shape), jnp.zeros(()))

    def add(self, batch: Float[Array, "n *s"], weights: Float[Array, " n"]) -> "Moments":
        """The moments after one more batch; rows of weight 0 do not count."""
        batch, weights = jax.lax.stop_gradient((batch, weights))
        share = weights / jnp.maximum(jnp.sum(weights), 1)
        mean = jnp.tensordot(share, batch, 1)
        rate = jnp.where(jnp.sum(weights) > 0, jnp.maximum(1 / (self.count + 1), 1e-3), 0)
        step = mean - self.mean
        centred = jnp.square(batch - jnp.broadcast_to(mean, batch.shape))
        variance = jnp.tensordot(share, centred, 1)
        # The variance of a mixture: within, plus between the old mean and the batch's.
        mixed = (1 - rate) * self.variance + rate * variance + rate * (1 - rate) * jnp.square(step)
        return Moments(self.mean + rate * step, mixed, self.count + 1)

    @property
    def std(self) -> Float[Array, "*s"]:
        """Standard deviation."""
        return jnp.sqrt(self.variance)


class Scales(eqx.Module):
    """Running statistics that scale inputs and losses."""

    observation: Moments
    value: Moments
    reward: Moments
    q: Moments


class Policy(NamedTuple):
    """What acting needs of a member."""

    networks: Networks
    observation: Moments
    exploration_noise: Float[Array, "*members"]
    exploration_period: Float[Array, "*members"]

    @property
    def action_size(self) -> int:
        """Numbers in an action."""
        return self.networks.actor.out.bias.shape[-1]


class AgentState(eqx.Module):
    """All that changes while a member learns."""

    networks: Networks
    target_critics: Critic
    optimisers: Mapping[str, optax.OptState]
    scales: Scales
    settings: MemberSettings
    step: Int[Array, ""]

    @property
    def policy(self) -> Policy:
        """The part that acts."""
        noise, period = self.settings.exploration_noise, self.settings.exploration_period
        return Policy(self.networks, self.scales.observation, noise, period)


@partial(jax.tree_util.register_dataclass, data_fields=["leaves"], meta_fields=["structure"])
@dataclass(frozen=True)
class Flat(Generic[Tree]):
    """A tree as the list of its arrays: where every step passes it on, taking nested modules
    apart would cost more than the call."""

    leaves: Any  # a list of arrays, or of whatever JAX puts in their places
    structure: Any

    @classmethod
    def of(cls, tree: Tree) -> "Flat[Tree]":
        """Takes a tree apart."""
        return cls(*jax.tree.flatten(tree))

    @property
    def tree(self) -> Tree:
        """The tree again."""
        found: Tree = jax.tree.unflatten(self.structure, self.leaves)
        return found


def flat_policy(state: Flat[AgentState]) -> Flat[Policy]:
    """The part of a flat state that acts, without putting it together."""
    places = _policy_places(state.structure)
    return Flat([state.leaves[place] for place in places.leaves], places.structure)


@cache
def _policy_places(structure: Any) -> Flat[Policy]:
    numbered: AgentState = jax.tree.unflatten(structure, range(structure.num_leaves))
    return Flat.of(numbered.policy)


def optimisers(config: AgentConfig) -> dict[str, optax.GradientTransformation]:
    """Clipping and Adam without its learning rate, for each part of the networks.

    Each part is one flat vector (`ravel_pytree`): one kernel instead of one per weight matrix.
    """
    optim = config.optim
    epsilons = dict.fromkeys(("encoder", "dynamics", "critics"), optim.epsilon)
    return {
        name: optax.chain(
            optax.clip_by_global_norm(optim.clip),
            optax.scale_by_adam(eps=epsilon),
        )
        for name, epsilon in (epsilons | {"actor": optim.actor_epsilon}).items()
    }


def init_member(
    key: PRNGKeyArray, config: AgentConfig, spec: Spec, settings: MemberSettings
) -> AgentState:
    """A member before its first step."""
    networks = init_networks(key, config, spec.observation_size, spec.action_size)
    return AgentState(
        networks=networks,
        target_critics=jax.tree.map(jnp.copy, networks.critics),
        optimisers={
            name: optimiser.init(ravel_pytree(getattr(networks, name))[0])
            for name, optimiser in optimisers(config).items()
        },
        scales=Scales(
            Moments.start((spec.observation_size,)),
            *(Moments.start() for _ in range(3)),
        ),
        settings=settings,
        step=jnp.zeros((), jnp.int32),
    )


def member_settings(
    config: AgentConfig, members: int, differing: Mapping[str, Sequence[float]] | None = None
) -> MemberSettings:
    """The members' settings as [S] arrays.

    Args:
        config: gives every setting that is not listed in `differing`.
        members: S.
        differing: for a setting's name, its value for each member.

    Returns:
        The settings with a leading member axis.

    Raises:
        UserError: an unknown name, or not one value per member.
    """
    loss = config.loss
    values: dict[str, float | Sequence[float]] = {
        "vaml": loss.vaml,
        "aux": loss.aux,
        "reward": loss.reward,
        "critic": loss.critic,
        "correction": loss.correction,
        "spread": loss.spread,
        "sigma_pull": loss.sigma_pull,
        "pre_tanh": loss.pre_tanh,
        "learning_rate": 1.0,
        "polyak": config.optim.polyak,
        "exploration_noise": config.exploration_noise,
        "exploration_period": config.exploration_period,
        "pessimism": loss.pessimism,
    }
    for name, given in (differing or {}).items():
        if name not in values:
            raise UserError(f"unknown member setting {name!r}; allowed are {', '.join(values)}")
        if len(given) != members:
            raise UserError(f"member setting {name!r} needs {members} values, got {len(given)}")
        values[name] = given
    arrays = {
        name: jnp.asarray(np.broadcast_to(np.asarray(value, np.float32), (members,)))
        for name, value in values.items()
    }
    # Built leaf by leaf: the fields are annotated for one member, the arrays hold S of them.
    template = MemberSettings(**{name: jnp.zeros(()) for name in arrays})
    tree = jax.tree.structure(template)
    found: MemberSettings = jax.tree.unflatten(tree, [arrays[name] for name in values])
    return found
