import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cvaml import cli
from cvaml.experiments.train import Config, cache_folder, main
from cvaml.types import UserError


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "dog-fly"], "unknown task 'dog-fly'; the nearest is 'dog-"),
        (["--env", "CartPole-v1"], "Discrete(2) is not continuous"),
        (["--task", "pendulum-swingup", "--set", "no_such_key=1"], "unknown setting 'no_such_key'"),
        (["--task", "pendulum-swingup", "--set", "batch_size"], "expects key=value"),
        (["--task", "pendulum-swingup", "--model", "deterministic"], "does not fit"),
        (["--task", "a", "--env", "b"], "not both"),
        ([], "give --task"),
        (["--task", "pendulum-swingup", "--overwrite"], "overwrite needs fresh"),
        (["--task", "pendulum-swingup", "--members", "0"], "members must be at least 1"),
        (["--task", "pendulum-swingup", "--k", "1"], "'cvaml-1-0'"),
        (["--task", "pendulum-swingup", "--variant", "td3", "--k", "4"], "'td3'"),
    ],
)
def test_refused_before_any_work(tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    out = tmp_path / "run"
    options = ["--preset", "small", "--out", str(out), "--no-compilation-cache"]
    assert cli.main(["train", *arguments, *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert not out.exists()


@pytest.fixture
def trained(monkeypatch):
    """What the command asks `train` for, without training."""
    asked = []

    def record(config, *, fresh, overwrite):
        asked.append((config, fresh, overwrite))
        return type("Trained", (), {"agent_step": config.agent_steps})()

    monkeypatch.setattr("cvaml.agent.train.train", record)
    monkeypatch.setattr(
        "cvaml.reports.training.training_figure", lambda folder, _: ([folder / "figure.png"], "")
    )
    return asked


def ask(trained, **options):
    assert main(Config(out=Path("x"), compilation_cache=False, **options)) == 0
    return trained[-1][0]


def test_every_option_reaches_the_run(trained):
    config = ask(
        trained,
        task=("humanoid-walk", "humanoid-run"),
        variant="vaml-1-1",
        k=3,
        model="deterministic",
        preset="small",
        members=3,
        agent_steps=4000,
        seed=5,
        set=(("planner.horizon=2", "batch_size=32"), ("discount=0.9",)),
        action_noise=0.2,
        eval_every=11,
        eval_episodes=12,
        checkpoint_every=13,
        log_every=14,
        replay_steps=15,
        writers=("tensorboard",),
        threads=1,
    )
    assert config.tasks == ("humanoid-walk",) * 3 + ("humanoid-run",) * 3
    assert config.seeds == (5, 6, 7, 8, 9, 10)
    assert (config.agent.variant.name, config.agent.model) == ("vaml-1-1", "deterministic")
    assert config.agent.variant.k == 3
    assert config.agent.planner.horizon == 2
    assert (config.agent.batch_size, config.agent.discount) == (32, 0.9)
    assert config.agent.random_steps == 400
    found = dataclasses.asdict(config)
    assert [found[n] for n in ("eval_every", "eval_episodes", "checkpoint_every", "log_every")] == [
        11, 12, 13, 14,
    ]  # fmt: skip
    assert (config.replay_steps, config.writers, config.threads) == (15, ("tensorboard",), 1)
    assert (config.agent_steps, config.action_noise) == (4000, 0.2)


def test_presets(trained):
    paper = ask(trained, env="Pendulum-v1")
    assert (paper.agent_steps, paper.agent.random_steps) == (500_000, 5_000)
    assert paper.eval_episodes >= 10
    assert paper.agent.network.width == 512
    small = ask(trained, env="Pendulum-v1", preset="small", agent_steps=1000)
    assert small.agent.random_steps == 100
    kept = ask(trained, env="Pendulum-v1", preset="small", set=(("random_steps=9000",),))
    assert kept.agent.random_steps == 9000
    assert trained[-1][1:] == (False, False)


def test_cache_is_the_users_and_can_be_switched_off(monkeypatch, tmp_path, trained):
    import jax

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "cvaml" / "compiled"
    before = jax.config.jax_compilation_cache_dir
    ask(trained, env="Pendulum-v1")
    assert jax.config.jax_compilation_cache_dir == before
    assert not (tmp_path / "cvaml").exists()
    try:
        assert main(Config(out=Path("x"), env="Pendulum-v1")) == 0
        assert jax.config.jax_compilation_cache_dir == str(cache_folder())
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "cvaml" / "compiled"


@pytest.mark.parametrize("option", [{"fresh": True}, {"fresh": True, "overwrite": True}])
def test_fresh_is_passed_on(trained, option):
    ask(trained, env="Pendulum-v1", **option)
    assert trained[-1][1:] == (True, option.get("overwrite", False))


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signals_exit_with_the_conventional_code(tmp_path, number, code):
    command = [sys.executable, "-m", "cvaml.cli", "train", "--env", "Pendulum-v1", "--preset"]
    command += [
        "small",
        "--variant",
        "td3",
        "--agent-steps",
        "100000",
        "--out",
        str(tmp_path / "r"),
    ]
    process = subprocess.Popen(
        [*command, "--checkpoint-every", "20", "--set", "network.width=8"],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")},
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("checkpoint"):
            break
    process.send_signal(number)
    error = process.communicate(timeout=120)[1]
    assert process.returncode == code
    assert "the same command goes on" in error


def test_evaluation_summary():
    from cvaml.agent.evaluate import Evaluation
    from cvaml.experiments.evaluate import _summary

    returns = np.array([[1.0, 3.0], [5.0, 7.0], [2.0, 2.0]])
    rows = _summary(("a", "a", "b"), (0, 1, 2), Evaluation(returns, 10 * returns))
    assert [(r["task"], r["seed"], r["episodes"], r["mean"]) for r in rows] == [
        ("a", "0", 2, 2.0),
        ("a", "1", 2, 6.0),
        ("b", "2", 2, 2.0),
        ("a", "all", 4, 4.0),
        ("b", "all", 2, 2.0),
    ]
    assert (rows[3]["low"], rows[3]["high"]) == (2.0, 6.0)
    assert (rows[2]["low"], rows[2]["high"]) == (2.0, 2.0)
    assert [row["optimism"] for row in rows] == [20, 60, 20, 40, 20]


def test_evaluate_refusals(tmp_path, capsys):
    assert cli.main(["evaluate", str(tmp_path)]) == 2
    assert "has no config.json" in capsys.readouterr().err
    assert cli.main(["evaluate", str(tmp_path), "--episodes", "0"]) == 2


def test_no_rendering_backend_is_told(monkeypatch):
    from cvaml.experiments import evaluate

    monkeypatch.setattr(evaluate, "_TRY", "import sys; sys.exit('no screen here')")
    with pytest.raises(UserError, match=r"egl: no screen here; osmesa: no screen here"):
        evaluate._rendering()


@pytest.mark.slow
def test_camera_draws_a_headless_task():
    """In a process of its own: the backend is chosen when mujoco is imported."""
    from cvaml.experiments.evaluate import _rendering

    try:
        backend = _rendering()
    except UserError as error:
        pytest.skip(str(error))
    script = (
        "from cvaml.experiments.film import _environment\n"
        "env, draw, repeat = _environment('pendulum-swingup')\n"
        "env.reset(seed=0); frame = draw()\n"
        "assert frame.shape == (240, 320, 3) and frame.std() > 5 and repeat == 2"
    )
    subprocess.run(
        [sys.executable, "-c", script], env=os.environ | {"MUJOCO_GL": backend}, check=True
    )


@pytest.mark.parametrize(
    ("asked", "devices"), [({}, "2 cpu devices"), ({"JAX_NUM_CPU_DEVICES": "1"}, "1 cpu device,")]
)
def test_the_command_trains_each_member_on_a_core_of_its_own(tmp_path, asked, devices):
    command = [sys.executable, "-m", "cvaml.cli", "train", "--task", "pendulum-swingup"]
    options = "--preset small --variant td3 --members 2 --agent-steps 3 --eval-episodes 1"
    options += " --threads 0 --set network.width=8 network.latent=8 network.bins=5"
    done = subprocess.run(
        [*command, *options.split(), "--out", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | asked,
    )
    assert f"2 members on {devices}" in done.stderr + done.stdout
