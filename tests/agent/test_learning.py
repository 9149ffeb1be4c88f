"""The whole agent learns two control tasks on a CPU, to 80 % of what a good agent reaches.

Good returns are the means of TD-MPC2's published runs after a million environment steps. The runs
here have 8 000 and 40 000 of them.
"""

from dataclasses import replace

import pytest

from cvaml.agent.config import preset
from cvaml.agent.train import train
from cvaml.agent.train_config import train_preset
from cvaml.runs.metrics import read_metrics


@pytest.mark.slow  # several minutes each
@pytest.mark.parametrize(
    ("task", "steps", "good"),
    [("pendulum-swingup", 4_000, 819.0), ("cartpole-swingup", 20_000, 876.0)],
)
def test_small_agents_learn(tmp_path, task, steps, good):
    config = train_preset("small", tmp_path / "run", preset("small"))
    train(replace(config, task=(task,), agent_steps=steps, eval_every=500, eval_episodes=4))
    metrics = read_metrics(tmp_path / "run")
    returns = metrics[metrics["metric"] == "eval_return"]["value"]
    assert returns.iloc[0] < 0.4 * good, "nothing was there to learn"
    assert returns.max() > 0.8 * good
