"""Evaluation without exploration, in environments of its own."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray

from cvaml.agent.config import AgentConfig
from cvaml.agent.policy import act_member
from cvaml.agent.state import AgentState
from cvaml.agent.train_config import TrainConfig
from cvaml.envs import VectorEnv, make_env

MAX_STEPS = 10_000
"""Agent steps after which an evaluation gives up waiting for an episode to end."""


@partial(jax.jit, static_argnames=("config",))
def greedy_actions(
    state: AgentState,
    observation: Float[Array, "S E o"],
    keys: Key[Array, " S"],
    step: Array,
    config: AgentConfig,
) -> Float[Array, "S E a"]:
    """The members' actions without exploration, for E observations each.

    Args:
        state: of the population.
        observation: E per member.
        keys: one per member, for the planner's samples.
        step: folded into the keys.
        config: of the agent.

    Returns:
        Actions in [-1, 1].
    """
    episodes = observation.shape[1]

    def member(state: AgentState, seen: Array, key: PRNGKeyArray) -> Array:
        each = jax.random.split(jax.random.fold_in(key, step), episodes)
        return jax.vmap(lambda o, k: act_member(state, o, k, config, explore=False)[0])(seen, each)

    return jax.vmap(member)(state, observation, keys)


class Evaluator:
    """Environments for `episodes` episodes of each member, the same starts at every evaluation.

    Equal starts take the luck of the draw out of the differences between two evaluations, and
    leave nothing that a checkpoint would have to remember.
    """

    def __init__(self, config: TrainConfig, episodes: int, seed: int = 0) -> None:
        """Makes the environments.

        Args:
            config: of the run.
            episodes: per member.
            seed: another seed gives other starts.
        """
        self.config, self.episodes = config, episodes
        tasks = [task for task in config.tasks for _ in range(episodes)]
        seeds = [
            int(word)
            for member in config.seeds
            for word in np.random.SeedSequence([member, seed, 0xE7A1]).generate_state(episodes)
        ]
        self.env: VectorEnv = make_env(
            tasks, seeds, threads=config.threads, action_noise=config.action_noise
        )
        self.env.reset()
        self.start = self.env.state()

    def returns(self, state: AgentState, keys: Key[Array, " S"]) -> Float[np.ndarray, "S E"]:
        """Undiscounted returns of one episode in every environment.

        Args:
            state: of the population.
            keys: one per member.
        """
        self.env.restore(self.start)
        obs, members = self.env.obs, len(self.config.tasks)
        returns = np.zeros(len(obs))
        running = np.ones(len(obs), bool)
        for step in range(MAX_STEPS):
            seen = jnp.asarray(obs.reshape(members, self.episodes, -1))
            actions = greedy_actions(state, seen, keys, jnp.int32(step), self.config.agent)
            outcome = self.env.step(np.asarray(actions).reshape(len(obs), -1))
            returns += np.where(running, outcome.reward, 0)
            running &= ~(outcome.terminated | outcome.truncated)
            if not running.any():
                break
            obs = outcome.obs
        return returns.reshape(members, self.episodes)

    def close(self) -> None:
        """Frees the environments."""
        self.env.close()
