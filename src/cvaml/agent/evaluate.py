"""Evaluation without exploration, in environments of its own."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray

from cvaml.agent.config import AgentConfig
from cvaml.agent.policy import act_member
from cvaml.agent.state import AgentState, Flat, Policy, flat_policy
from cvaml.agent.train_config import TrainConfig
from cvaml.envs import VectorEnv, make_env

MAX_STEPS = 10_000
"""Agent steps after which an evaluation gives up waiting for an episode to end."""


@partial(jax.jit, static_argnames=("config",))
def greedy_actions(
    policy: Flat[Policy],
    observation: Float[Array, "S E o"],
    keys: Key[Array, " S"],
    step: Array,
    config: AgentConfig,
) -> Float[Array, "S E a"]:
    """The members' actions without exploration, for E observations each.

    Args:
        policy: of the population.
        observation: E per member.
        keys: one per member, for the planner's samples.
        step: folded into the keys.
        config: of the agent.

    Returns:
        Actions in [-1, 1].
    """
    episodes = observation.shape[1]

    def member(policy: Policy, seen: Array, key: PRNGKeyArray) -> Array:
        each = jax.random.split(jax.random.fold_in(key, step), episodes)
        return jax.vmap(lambda o, k: act_member(policy, o, k, None, config)[0])(seen, each)

    return jax.vmap(member)(policy.tree, observation, keys)


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
        """Plans once, so that the time of `returns` holds no compilation."""
        for half in self._halves:
            half.begin(keys)
            half.plan(flat_policy(Flat.of(state)), self.config.agent)

    def returns(
        self, state: AgentState, keys: Key[Array, " S"], steps: int = MAX_STEPS
    ) -> Float[np.ndarray, "S E"]:
        """Undiscounted returns of one episode in every environment.

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
        return np.concatenate([half.returns for half in self._halves], axis=1)

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
        self.returns, self.running = np.zeros(self.shape), np.ones(self.shape, bool)

    def plan(self, policy: Flat[Policy], agent: AgentConfig) -> None:
        """Starts the computation of the next actions, without waiting for them."""
        seen = jnp.asarray(self.obs.reshape(*self.shape, -1))
        self.actions = greedy_actions(policy, seen, self.keys, jnp.int32(self.count), agent)
        self.actions.copy_to_host_async()
        self.count += 1

    def step(self) -> None:
        """Takes the planned actions."""
        outcome = self.env.step(np.asarray(self.actions).reshape(len(self.obs), -1))
        self.returns += np.where(self.running, outcome.reward.reshape(self.shape), 0)
        ended = outcome.terminated | outcome.truncated
        self.running &= ~ended.reshape(self.shape)
        self.obs = outcome.obs
