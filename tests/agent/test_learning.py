"""The whole agent learns two control tasks on a CPU, to 80 % of what a good agent reaches.

Good returns are the means of TD-MPC2's published runs after a million environment steps. The runs
here have 16 000 and 40 000 of them. The pendulum pays nothing until it is upright for the first
time, which is luck: of four seeds the best one counts.
"""

from dataclasses import replace

import pytest

from cvaml.agent.config import preset
from cvaml.agent.train import train
from cvaml.agent.train_config import train_preset
from cvaml.runs.metrics import read_metrics


@pytest.mark.slow  # up to ten minutes each
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("task", "members", "steps", "every", "good"),
    [("pendulum-swingup", 4, 8_000, 500, 819.0), ("cartpole-swingup", 1, 20_000, 500, 876.0)],
)
def test_small_agents_learn(tmp_path, task, members, steps, every, good):
    config = replace(
        train_preset("small", tmp_path / "run", preset("small")),
        task=(task,),
        members=members,
        agent_steps=steps,
        eval_every=every,
        eval_episodes=4,
    )
    train(config)
    metrics = read_metrics(tmp_path / "run")
    evaluations = metrics[metrics["metric"] == "eval_return"]
    first = evaluations[evaluations["agent_step"] == evaluations["agent_step"].min()]
    assert len(first) == members
    assert (first["value"] < 0.4 * good).all(), "nothing was there to learn"
    assert evaluations["value"].max() > 0.8 * good
