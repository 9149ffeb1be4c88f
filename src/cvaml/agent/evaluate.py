"""Evaluation without exploration, in environments of its own."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray

from cvaml.agent.config import AgentConfig
from cvaml.agent.networks import ValueHead
from cvaml.agent.policy import act_member
from cvaml.agent.state import AgentState, Flat, Policy, flat_policy
from cvaml.agent.train_config import TrainConfig
from cvaml.agent.view import normalise, state_values
from cvaml.envs import VectorEnv, make_env

MAX_STEPS = 10_000
"""Agent steps after which an evaluation gives up waiting for an episode to end."""


class Evaluation(NamedTuple):
    """What episodes gave, and what the critics had expected of them."""

    returns: Float[np.ndarray, "S E"]
    """Undiscounted returns."""
    optimism: Float[np.ndarray, "S E"]
    """Mean over an episode's states of V minus the discounted return that followed."""


@partial(jax.jit, static_argnames=("config",))
def greedy(
    policy: Flat[Policy],
    observation: Float[Array, "S E o"],
    keys: Key[Array, " S"],
    step: Array,
    config: AgentConfig,
) -> tuple[Float[Array, "S E a"], Float[Array, "S E"]]:
    """The members' actions without exploration, and their values, for E observations each.

    Args:
        policy: of the population.
        observation: E per member.
        keys: one per member, for the planner's samples.
        step: folded into the keys.
        config: of the agent.

    Returns:
        Actions in [-1, 1], and V of the observations: the mean of both critics.
    """
    episodes = observation.shape[1]
    head = ValueHead.of(config.network)

    def member(policy: Policy, seen: Array, key: PRNGKeyArray) -> tuple[Array, Array]:
        each = jax.random.split(jax.random.fold_in(key, step), episodes)
        actions = jax.vmap(lambda o, k: act_member(policy, o, k, None, config)[0])(seen, each)
        networks = policy.networks
        z = networks.encoder(normalise(seen, policy.observation, config))
        return actions, jnp.mean(state_values(networks.critics, networks.actor, z, head), axis=0)

    found: tuple[Array, Array] = jax.vmap(member)(policy.tree, observation, keys)
    return found


def optimism(
    rewards: Float[np.ndarray, "T *n"],
    values: Float[np.ndarray, "T *n"],
    counts: Bool[np.ndarray, "T *n"],
    after: Float[np.ndarray, "*n"],
    discount: float,
) -> Float[np.ndarray, "*n"]:
    """How much higher values are than the discounted returns that followed, on average.

    Args:
        rewards: of the steps.
        values: of the states before them.
        counts: whether the step belongs to the episode; no step behind its end does.
        after: value of the state that the last step led to, 0 if the episode terminated there.
        discount: per step.

    Returns:
        The mean over each episode's steps.
    """
    following, excess = after, np.zeros_like(after)
    for reward, value, here in zip(rewards[::-1], values[::-1], counts[::-1], strict=True):
        following = np.where(here, reward + discount * following, following)
        excess = excess + np.where(here, value - following, 0)
    mean: Float[np.ndarray, "*n"] = excess / counts.sum(axis=0)
    return mean


class Evaluator:
    """Environments for `episodes` episodes of each member, the same starts at every evaluation.

    Equal starts take the luck of the draw out of the differences between two evaluations, and
    leave nothing that a checkpoint would have to remember. The episodes form two halves: while
    the environments of one step, the actions of the other are planned.
    """

    def __init__(self, config: TrainConfig, episodes: int, seed: int = 0) -> None:
        """Makes the environments.

        Args:
            config: of the run.
            episodes: per member.
            seed: another seed gives other starts.
        """
        self.config = config
        starts = [
            np.random.SeedSequence([member, seed, 0xE7A1]).generate_state(episodes)
            for member in config.seeds
        ]
        # Halves of unequal size would be compiled twice: an odd number stays in one piece.
        middle = episodes // 2
        parts = [slice(None)] if episodes % 2 else [slice(middle), slice(middle, None)]
        self._halves = [_Half(config, [each[part] for each in starts]) for part in parts]

    def compile(self, state: AgentState, keys: Key[Array, " S"]) -> None:
        """Plans once, so that the time of `run` holds no compilation."""
        for half in self._halves:
            half.begin(keys)
            half.plan(flat_policy(Flat.of(state)), self.config.agent)

    def run(self, state: AgentState, keys: Key[Array, " S"], steps: int = MAX_STEPS) -> Evaluation:
        """One episode in every environment.

        Args:
            state: of the population.
            keys: one per member.
            steps: agent steps after which no end is waited for.
        """
        agent, policy = self.config.agent, flat_policy(Flat.of(state))
        for number, half in enumerate(self._halves):
            half.begin(jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, number))
            half.plan(policy, agent)
        for _ in range(steps):
            for half in self._halves:
                if half.running.any():
                    half.step()
                if half.running.any():
                    half.plan(policy, agent)
            if not any(half.running.any() for half in self._halves):
                break
        found = [half.found(policy, agent) for half in self._halves]
        return Evaluation(*(np.concatenate(parts, axis=1) for parts in zip(*found, strict=True)))

    def close(self) -> None:
        """Frees the environments."""
        for half in self._halves:
            half.env.close()


class _Half:
    """Some episodes of every member, in environments of their own."""

    def __init__(self, config: TrainConfig, starts: list[np.ndarray]) -> None:
        self.shape = (len(starts), len(starts[0]))
        tasks = [task for task in config.tasks for _ in starts[0]]
        seeds = [int(word) for each in starts for word in each]
        self.env: VectorEnv = make_env(
            tasks, seeds, threads=config.threads, action_noise=config.action_noise
        )
        self.env.reset()
        self.start = self.env.state()

    def begin(self, keys: Key[Array, " S"]) -> None:
        """Back to the start."""
        self.env.restore(self.start)
        self.keys, self.obs, self.count = keys, self.env.obs, 0
        self.running, self.terminated = np.ones(self.shape, bool), np.zeros(self.shape, bool)
        self.rewards: list[np.ndarray] = []
        self.values: list[Array] = []
        self.counts: list[np.ndarray] = []
        self.final = self.obs

    def plan(self, policy: Flat[Policy], agent: AgentConfig) -> None:
        """Starts the computation of the next actions, without waiting for them."""
        seen = jnp.asarray(self.obs.reshape(*self.shape, -1))
        count = jnp.int32(self.count)
        self.actions, self.value = greedy(policy, seen, self.keys, count, agent)
        self.actions.copy_to_host_async()
        self.count += 1

    def step(self) -> None:
        """Takes the planned actions."""
        outcome = self.env.step(np.asarray(self.actions).reshape(len(self.obs), -1))
        terminated, truncated = (
            x.reshape(self.shape) for x in (outcome.terminated, outcome.truncated)
        )
        self.rewards.append(outcome.reward.reshape(self.shape))
        self.values.append(self.value)
        self.counts.append(self.running.copy())
        self.terminated |= self.running & terminated
        self.final = np.where(self.running.reshape(-1, 1), outcome.final_obs, self.final)
        self.running &= ~(terminated | truncated)
        self.obs = outcome.obs

    def found(self, policy: Flat[Policy], agent: AgentConfig) -> Evaluation:
        """Of the steps so far."""
        last = jnp.asarray(self.final.reshape(*self.shape, -1))
        after = np.asarray(greedy(policy, last, self.keys, jnp.int32(self.count), agent)[1])
        after = np.where(self.terminated, 0, after)
        rewards, counts = np.stack(self.rewards), np.stack(self.counts)
        values = np.stack(jax.device_get(self.values))
        excess = optimism(rewards, values, counts, after, agent.discount)
        return Evaluation(np.where(counts, rewards, 0).sum(axis=0), excess)
