"""kill -9 of a real training process at three moments, then the same command again.

The programs are compiled once and kept in a cache that all processes of a test share.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from cvaml.runs.checkpoints import Checkpoints
from cvaml.runs.metrics import read_metrics

TINY = [
    *("network.width=8", "network.latent=8", "network.bins=5", "batch_size=16"),
    *("planner.samples=4", "planner.elites=2", "planner.iterations=1"),
]


def command(out: Path, task: list[str], variant: str, steps: int) -> list[str]:
    return [
        *(sys.executable, "-m", "cvaml.cli", "train", *task, "--variant", variant),
        *("--preset", "small", "--members", "2", "--agent-steps", str(steps)),
        *("--checkpoint-every", "50", "--log-every", "20", "--eval-every", "100"),
        *("--eval-episodes", "1", "--out", str(out), "--set", *TINY),
    ]


def environment(cache: Path) -> dict[str, str]:
    return os.environ | {"XDG_CACHE_HOME": str(cache), "PYTHONWARNINGS": "default"}


def run_to_the_end(arguments: list[str], cache: Path) -> str:
    done = subprocess.run(
        arguments, env=environment(cache), capture_output=True, text=True, timeout=550
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def kill_when(arguments: list[str], cache: Path, happened) -> None:
    """Starts the command and kills it -9 as soon as something has happened."""
    process = subprocess.Popen(arguments, env=environment(cache), stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 550
    try:
        while not happened():
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < deadline
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()


def assert_same_run(one: Path, other: Path) -> None:
    curves = []
    for folder in (one, other):
        table = read_metrics(folder)
        kept = table[~table["metric"].str.startswith("time/")].drop(columns="wall_s")
        curves.append(kept.reset_index(drop=True))
    assert len(curves[0]) > 100
    assert curves[0].equals(curves[1])
    first, second = (Checkpoints(folder).restore() for folder in (one, other))
    assert first is not None
    assert second is not None
    assert first.arrays.keys() == second.arrays.keys()
    for name, array in first.arrays.items():
        np.testing.assert_array_equal(array, second.arrays[name], err_msg=name)
    whole = [
        {
            name: np.concatenate([c.arrays[name] for c in found.rows])
            for name in ("action", "reward")
        }
        for found in (first, second)
    ]
    if len(first.rows) == len(second.rows):  # else cut elsewhere
        for name, rows in whole[0].items():
            np.testing.assert_array_equal(rows, whole[1][name])


def kill_three_times(tmp_path: Path, task: list[str], variant: str, steps: int) -> None:
    cache = tmp_path / "cache"
    run_to_the_end(command(tmp_path / "whole", task, variant, steps), cache)
    broken = tmp_path / "broken"
    arguments, checkpoints = command(broken, task, variant, steps), broken / "checkpoints"
    kill_when(arguments, cache, lambda: any(checkpoints.glob(".writing-*")))  # within a write
    kill_when(arguments, cache, lambda: 50 in Checkpoints(broken).steps())  # right after one
    kill_when(arguments, cache, lambda: (broken / "metrics").exists() and _reached(broken, 120))
    assert "resumed at step" in run_to_the_end(arguments, cache)
    assert_same_run(tmp_path / "whole", broken)


def _reached(folder: Path, step: int) -> bool:
    time.sleep(0.01)
    return max(Checkpoints(folder).steps(), default=0) >= step - step % 50


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("task", [["--task", "humanoid-walk"], ["--env", "Pendulum-v1"]])
def test_kill_anywhere_and_resume_give_the_same_run(tmp_path, task):
    kill_three_times(tmp_path, task, "cvaml-1-0", 220)


def test_kill_during_a_checkpoint_and_resume(tmp_path):
    """The short one: a model-free agent compiles in seconds."""
    cache = tmp_path / "cache"
    task, steps = ["--env", "Pendulum-v1"], 70
    run_to_the_end(command(tmp_path / "whole", task, "td3", steps), cache)
    broken = tmp_path / "broken"
    arguments = command(broken, task, "td3", steps)
    kill_when(arguments, cache, lambda: any((broken / "checkpoints").glob("**/.writing-*")))
    run_to_the_end(arguments, cache)
    assert_same_run(tmp_path / "whole", broken)


def test_second_process_on_the_folder_is_refused(tmp_path):
    from cvaml.runs.folder import RunFolder
    from cvaml.runs.lock import locked

    arguments = command(tmp_path / "run", ["--env", "Pendulum-v1"], "td3", 70)
    RunFolder.open(tmp_path / "run", "other", {})
    with locked(tmp_path / "run"):
        done = subprocess.run(
            [*arguments, "--fresh", "--overwrite"], capture_output=True, text=True, timeout=300
        )
    assert done.returncode == 2
    assert f"in use by another process ({os.getpid()})" in done.stderr
