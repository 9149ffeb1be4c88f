"""What a finished training run leaves to look at."""

import json

import numpy as np
import pytest

from cvaml.reports.training import training_figure
from cvaml.runs.folder import RunFolder
from cvaml.runs.metrics import MetricsStore


@pytest.fixture
def run(tmp_path):
    folder = RunFolder.open(tmp_path / "run", "train", {"variant": "cvaml-1-0", "agent": {}})
    members = [
        {"variant": "cvaml-1-0", "model": "stochastic", "task": task, "seed": seed}
        for task in ("cartpole-swingup", "pendulum-swingup")
        for seed in (0, 1)
    ]
    writer = MetricsStore(folder)
    for step in (100, 200):
        counters = {"agent_step": step, "env_step": 2 * step, "grad_step": step, "wall_s": 1.0}
        values = np.array([1.0, 3.0, 10.0, 10.0]) * step
        writer.add(members, counters, {"eval_return": values})
    writer.flush()
    return folder


def test_the_curve_is_drawn_and_the_last_evaluation_is_said(run):
    files, text = training_figure(run.path, np.random.default_rng(0))
    assert {path.name for path in files} == {"figure.png", "figure.pdf"}
    assert all(path.stat().st_size > 5000 for path in files)
    cartpole, pendulum = text.splitlines()
    assert cartpole.split() == [
        *("cartpole-swingup", "return", "400.0", "[200.0,", "600.0]", "over", "2", "members"),
        *("at", "400", "environment", "steps"),
    ]
    assert "return 2000.0 [2000.0, 2000.0]" in pendulum
    assert json.loads((run.path / "config.json").read_text())
