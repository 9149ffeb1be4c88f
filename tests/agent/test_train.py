"""The loop, in one process: what is compiled once serves all tests."""

import contextlib
import dataclasses
import os
import shutil
import signal
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cvaml.agent import population
from cvaml.agent.config import preset
from cvaml.agent.config_text import override
from cvaml.agent.evaluate import Evaluator
from cvaml.agent.load import load
from cvaml.agent.sums import NotFiniteError
from cvaml.agent.train import cpu_devices, train
from cvaml.agent.train_config import TrainConfig, from_settings, stored_settings
from cvaml.agent.trainer import Trainer, member_keys
from cvaml.envs import make_env
from cvaml.runs.checkpoints import Checkpoints
from cvaml.runs.folder import RunFolder
from cvaml.runs.metrics import read_metrics
from cvaml.runs.signals import Interrupted
from cvaml.types import UserError

TINY = {
    "network.width": "8",
    "network.latent": "8",
    "network.bins": "5",
    "planner.samples": "4",
    "planner.elites": "2",
    "planner.iterations": "1",
    "batch_size": "16",
    "random_steps": "6",
}


def config(out: Path, **changes) -> TrainConfig:
    """td3 compiles fastest; the slow tests train the whole agent."""
    settings = {
        "task": ("Pendulum-v1",),
        "members": 2,
        "agent_steps": 40,
        "agent": override(preset("small", variant="td3"), TINY),
        "eval_every": 0,
        "eval_episodes": 1,
        "checkpoint_every": 16,
        "log_every": 8,
        "threads": 0,
    }
    return TrainConfig(out=out, **(settings | changes))


def curve(folder: Path):
    """Everything that must not depend on interruptions."""
    table = read_metrics(folder)
    table = table[~table["metric"].str.startswith("time/")].drop(columns="wall_s")
    return table.reset_index(drop=True)


def parameters(folder: Path) -> dict[str, np.ndarray]:
    found = dict(Checkpoints(folder).read_newest().arrays)
    return {name: array for name, array in found.items() if name.startswith("['state']")}


def assert_same_run(one: Path, other: Path) -> None:
    a, b = curve(one), curve(other)
    assert len(a) > 0
    assert a.equals(b)
    first, second = parameters(one), parameters(other)
    assert first.keys() == second.keys()
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name], err_msg=name)


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> Path:
    """A run that nothing interrupted."""
    out = tmp_path_factory.mktemp("reference") / "run"
    train(config(out))
    return out


def test_a_run_leaves_what_it_promises(reference):
    done = RunFolder(reference).done
    assert done is not None
    assert done["agent_step"] == 40
    assert 0 < done["checkpoint_share"] < 1
    table = read_metrics(reference)
    assert set(table["seed"]) == {0, 1}
    assert set(table["task"]) == {"Pendulum-v1"}
    assert set(table["variant"]) == {"td3"}
    loss = table[table["metric"] == "loss/critic"]
    assert loss.agent_step.tolist() == [8, 8, 16, 16, 24, 24, 32, 32, 40, 40]
    assert loss.grad_step.tolist()[-1] == 40 - 6
    assert (loss.env_step == loss.agent_step).all()
    evaluation = table[table["metric"] == "eval_return"]
    assert len(evaluation) == 2
    assert (evaluation.value < -100).all()  # an untrained pendulum hangs down 200 steps
    assert table.wall_s.is_monotonic_increasing
    assert Checkpoints(reference).steps() == [32, 40]


def test_finished_run_is_not_run_again(reference):
    before = {p: p.stat().st_mtime_ns for p in reference.rglob("*") if p.name != ".lock"}
    trained = train(config(reference))
    assert trained.agent_step == 40
    assert {p: p.stat().st_mtime_ns for p in reference.rglob("*") if p.name != ".lock"} == before


@pytest.mark.parametrize("crash", [3, 21, 39])
def test_crash_and_resume_give_the_same_run(reference, tmp_path, monkeypatch, crash):
    advance = Trainer.advance

    def failing(self):
        if self.step_count == crash:
            raise RuntimeError("power cut")
        advance(self)

    monkeypatch.setattr(Trainer, "advance", failing)
    with pytest.raises(RuntimeError, match="power cut"):
        train(config(tmp_path / "run"))
    monkeypatch.setattr(Trainer, "advance", advance)
    moved = (tmp_path / "run").rename(tmp_path / "elsewhere")
    train(config(moved))
    assert_same_run(reference, moved)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_leaves_a_checkpoint_and_the_run_goes_on(
    reference, tmp_path, monkeypatch, number, code
):
    advance = Trainer.advance

    def signalled(self):
        advance(self)
        if self.step_count == 13:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(Trainer, "advance", signalled)
    with pytest.raises(Interrupted) as stop:
        train(config(tmp_path / "run"))
    assert stop.value.exit_code == code
    assert Checkpoints(tmp_path / "run").steps() == [13]
    monkeypatch.setattr(Trainer, "advance", advance)
    train(config(tmp_path / "run", checkpoint_every=30))  # the interval may change
    assert_same_run(reference, tmp_path / "run")


def test_broken_newest_checkpoint_loses_nothing(reference, tmp_path, monkeypatch):
    advance = Trainer.advance

    def failing(self):
        if self.step_count == 35:
            raise RuntimeError
        advance(self)

    monkeypatch.setattr(Trainer, "advance", failing)
    with pytest.raises(RuntimeError):
        train(config(tmp_path / "run"))
    monkeypatch.setattr(Trainer, "advance", advance)
    (tmp_path / "run/checkpoints/0000000032/meta.json").write_text("{")
    with pytest.warns(UserWarning, match="checkpoint 32 is broken"):
        train(config(tmp_path / "run"))
    assert_same_run(reference, tmp_path / "run")


def test_bad_loss_stops_the_run_and_names_it(tmp_path, monkeypatch):
    update = population.add_and_update

    def poisoned(state, replay, sums, step, planned, *rest):
        # An array of planner statistics is summed next to the losses: a NaN among them is found.
        bad = jnp.array([0.0, np.nan if int(state.tree.step[0]) == 19 else 0.0])
        return update(state, replay, sums, step, planned | {"loss/critic": bad}, *rest)

    monkeypatch.setattr(population, "add_and_update", poisoned)
    message = r"loss/critic of member 1 \(Pendulum-v1, seed 1\) is not finite at update 20"
    with pytest.raises(NotFiniteError, match=message + ".*checkpoint of step 16 is good"):
        train(config(tmp_path / "run"))
    assert Checkpoints(tmp_path / "run").steps() == [16]
    assert RunFolder(tmp_path / "run").done is None


def test_everything_is_compiled_once(tmp_path):
    run = config(tmp_path / "run")
    env = make_env(run.tasks, run.seeds, threads=0)
    env.reset()
    trainer = Trainer(run, env)
    programs = (population._act, population._add_and_update, population._diagnose)
    before = [program._cache_size() for program in programs]
    for _ in range(30):
        trainer.advance()
        if trainer.step_count % 12 == 0:
            trainer.read_sums()
            trainer.snapshot()
    env.close()
    grown = [program._cache_size() - old for program, old in zip(programs, before, strict=True)]
    assert max(grown) <= 1, "a second program for the same shapes"


def test_environment_that_does_not_come_back_starts_a_new_episode(tmp_path, monkeypatch):
    run = config(tmp_path / "run")
    env = make_env(run.tasks, run.seeds, threads=0)
    env.reset()
    trainer = Trainer(run, env)
    for _ in range(5):
        trainer.advance()
    arrays, meta, rows = trainer.snapshot()
    Checkpoints(tmp_path).save(5, arrays, meta, rows)
    checkpoints = Checkpoints(tmp_path)
    while not checkpoints.steps():
        pass
    found = checkpoints.restore()
    assert found is not None
    found.arrays["env/obs"][1] += 1.0  # type: ignore[index] # the replayed episode ends elsewhere
    again = Trainer(run, env)
    with pytest.warns(UserWarning, match="1 of 2 members could not be brought back"):
        again.restore(found)
    assert again.counters["restarts"].tolist() == [0, 1]
    # The step before stays as the end of the old episode: the new one begins behind it.
    again.advance()
    assert again.replay.current_index.tolist() == [5, 6]
    final = np.asarray(again.replay.experience.final)[:, 0]
    assert final[1, 5]
    env.close()


def test_fresh_and_overwrite(reference, tmp_path):
    with pytest.raises(UserError, match="holds a run; add overwrite"):
        train(config(reference), fresh=True)
    with pytest.raises(UserError, match="overwrite needs fresh"):
        train(config(reference), overwrite=True)
    with pytest.raises(UserError, match="seed: 0 there, 5 here"):
        train(config(reference, seed=5))
    folder = RunFolder.open(tmp_path / "run", "train", {"old": 1})
    folder.file("notes.txt").write_text("mine")
    train(config(folder.path), fresh=True, overwrite=True)
    assert folder.file("notes.txt").exists()
    assert_same_run(reference, folder.path)


def test_a_folder_started_over_in_between_is_refused(tmp_path, monkeypatch):
    @contextlib.contextmanager
    def late(folder):
        """The lock, obtained just after another process replaced the run."""
        RunFolder(folder).start_over("train", {"seed": 7})
        yield

    monkeypatch.setattr("cvaml.agent.train.locked", late)
    with pytest.raises(UserError, match="seed: 7 there, 0 here"):
        train(config(tmp_path / "run"))


def test_writers_get_the_same_numbers(reference, tmp_path):
    train(config(tmp_path / "run", writers=("tensorboard",)))
    assert_same_run(reference, tmp_path / "run")
    (events,) = (tmp_path / "run/tensorboard").iterdir()
    assert b"loss/critic/Pendulum-v1-1" in events.read_bytes()
    assert not (reference / "tensorboard").exists()


def test_bad_task_leaves_no_folder(tmp_path):
    with pytest.raises(UserError, match="unknown task 'dog-fly'"):
        train(config(tmp_path / "run", task=("dog-fly",)))
    assert not (tmp_path / "run").exists()


def test_load_acts_as_the_evaluation_does(reference):
    trained = load(reference)
    assert trained.agent_step == 40
    observation = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.5]], np.float32)
    actions = trained.act(observation)
    assert actions.shape == (2, 1)
    assert (np.abs(actions) <= 1).all()
    np.testing.assert_array_equal(actions, trained.act(observation))
    second = trained.member(1)
    assert second.config.seeds == (1,)
    np.testing.assert_allclose(second.act(observation[1]), actions[1], atol=1e-6)
    with pytest.raises(UserError, match=r"shape \(3,\), expected \(2, 3\)"):
        trained.act(observation[0])
    with pytest.raises(UserError, match="no member 2"):
        trained.member(2)


def test_an_evaluation_can_be_cut_short(reference):
    trained = load(reference)
    evaluator = Evaluator(trained.config, 1)
    keys = member_keys((0, 1)).evaluate
    short, whole = (evaluator.run(trained.state, keys, n).returns for n in (3, 200))
    evaluator.close()
    assert (short < 0).all()
    assert (short > -50).all(), "a step of the pendulum costs at most 16.3"
    assert (whole < short - 50).all(), "an untrained pendulum hangs down"


def test_load_refuses_what_is_no_training_run(tmp_path):
    with pytest.raises(UserError, match="has no config"):
        load(tmp_path)
    RunFolder.open(tmp_path / "g", "garnet", {})
    with pytest.raises(UserError, match="holds the study 'garnet'"):
        load(tmp_path / "g")
    RunFolder.open(tmp_path / "t", "train", stored_settings(config(tmp_path)))
    with pytest.raises(UserError, match="no whole checkpoint"):
        load(tmp_path / "t")


def test_state_of_another_version_is_told(reference, tmp_path):
    shutil.copytree(reference, tmp_path / "run")
    (tmp_path / "run/done.json").unlink()
    stored = RunFolder(tmp_path / "run").read_json("config.json")
    stored["settings"]["agent"]["network"]["width"] = 4
    RunFolder(tmp_path / "run").write_json("config.json", stored)
    with pytest.raises(UserError, match="trained by another version of the agent: array"):
        load(tmp_path / "run")
    network = dataclasses.replace(config(tmp_path).agent.network, width=4)
    agent = dataclasses.replace(config(tmp_path).agent, network=network)
    with pytest.raises(UserError, match="begun by another version of the agent: array"):
        train(config(tmp_path / "run", agent=agent))


def test_stored_settings_round_trip(tmp_path):
    wanted = config(tmp_path, member_settings={"aux": [1.0, 0.5]}, checkpoint_every=10_000)
    stored = stored_settings(wanted)
    assert stored["variant"] == "td3"
    found = from_settings(stored, tmp_path)
    assert found.agent == wanted.agent
    assert stored_settings(found) == stored
    for broken, message in [
        (stored | {"agent_stepz": 1}, "did you mean 'agent_steps'"),
        ({k: v for k, v in stored.items() if k != "seed"}, "missing key 'seed'"),
        (stored | {"agent": stored["agent"] | {"discout": 1}}, "did you mean 'discount'"),
    ]:
        with pytest.raises(UserError, match=message):
            from_settings(broken, tmp_path)


def test_member_settings_reach_the_members(reference, tmp_path):
    run = config(tmp_path / "run", member_settings={"learning_rate": [1.0, 0.0]})
    trained = train(run)
    start = population.init_population(
        member_keys(run.seeds).init, run.agent, trained.spec, run.member_settings
    )

    def moved(member):
        pairs = zip(
            jax.tree.leaves(start.networks), jax.tree.leaves(trained.state.networks), strict=True
        )
        return any(not np.array_equal(a[member], b[member]) for a, b in pairs)

    assert moved(0)
    assert not moved(1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"members": 0}, "members must be at least 1"),
        ({"log_every": 0}, "log_every must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"task": ()}, "task is empty"),
        ({"replay_steps": 1}, "replay_steps must be at least"),
    ],
)
def test_configurations_that_make_no_sense(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        dataclasses.replace(config(tmp_path), **changes)


def test_members_and_seeds(tmp_path):
    run = config(tmp_path, task=("a", "b"), members=2, seed=7)
    assert run.tasks == ("a", "a", "b", "b")
    assert run.seeds == (7, 8, 9, 10)


def test_members_are_spread_over_the_cores_two_on_a_device_at_most():
    found = {(m, c): cpu_devices(m, c) for m, c in [(1, 2), (2, 2), (3, 2), (4, 2), (8, 2)]}
    assert found == {(1, 2): 1, (2, 2): 2, (3, 2): 3, (4, 2): 2, (8, 2): 4}
    assert cpu_devices(8, 16) == 8
    assert cpu_devices(6, 4) == 6  # four do not divide six
    assert cpu_devices(7, 1) == 7
