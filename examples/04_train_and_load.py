"""Trains a tiny population from Python, loads it from its run folder and lets it act.

The agent here is model-free (`td3`) and very small, so that everything is compiled in seconds;
`preset("small")` alone is the real thing. A second call on the same folder finds the run finished.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np

from cvaml.agent.config import preset
from cvaml.agent.config_text import override
from cvaml.agent.load import load
from cvaml.agent.train import train
from cvaml.agent.train_config import TrainConfig
from cvaml.runs.metrics import read_metrics


def main(out: Path) -> None:
    agent = override(
        preset("small", variant="td3"),
        {"network.width": "32", "network.latent": "16", "random_steps": "50"},
    )
    config = TrainConfig(
        out=out,
        task=("Pendulum-v1",),
        members=2,  # two seeds in one program
        agent_steps=300,
        agent=agent,
        member_settings={"learning_rate": [1.0, 0.3]},  # settings may differ between members
        eval_every=0,  # at the end only
        eval_episodes=1,
        checkpoint_every=100,  # kill it anywhere: the same call goes on from there
        log_every=50,
        threads=0,
    )
    train(config)
    train(config)  # nothing left to do

    curves = read_metrics(out)
    print(curves[curves["metric"] == "eval_return"][["seed", "agent_step", "value"]])

    first = load(out).member(0)
    env = gymnasium.make("Pendulum-v1")
    observation, _ = env.reset(seed=0)
    total = 0.0
    for _ in range(50):
        action = first.act(np.asarray(observation))  # in [-1, 1]
        observation, reward, *_ = env.step(2 * action)  # the pendulum takes torques in [-2, 2]
        total += float(reward)
    print(f"return of 50 steps with member 0: {total:.1f}")

    # The same population with another learning rate is another run: it needs its own folder.
    print(replace(config, out=out.with_name("another"), seed=10).seeds)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder) / "run")
