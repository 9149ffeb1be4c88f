"""Training a population: the loop around `Trainer`, with everything that makes it survive."""

import contextlib
import time
from contextlib import ExitStack
from pathlib import Path

import jax
import numpy as np

from cvaml.agent import population
from cvaml.agent.evaluate import Evaluator
from cvaml.agent.load import STUDY, TrainedPopulation, load
from cvaml.agent.sums import NotFiniteError
from cvaml.agent.train_config import TrainConfig, stored_settings
from cvaml.agent.trainer import Trainer
from cvaml.envs import make_env
from cvaml.runs.arrays import BrokenFileError
from cvaml.runs.checkpoints import Checkpoints
from cvaml.runs.folder import RunFolder
from cvaml.runs.lock import locked
from cvaml.runs.metrics import MetricsStore
from cvaml.runs.progress import Progress
from cvaml.runs.signals import Interrupted, Requests, stop_requests
from cvaml.runs.writers import Writer, make_writer
from cvaml.types import UserError, usable_cores


def train(
    config: TrainConfig, *, fresh: bool = False, overwrite: bool = False
) -> TrainedPopulation:
    """Trains a population, or goes on with one: the same configuration on the same folder resumes.

    Args:
        config: what to train, and where to.
        fresh: start from the beginning; refused if the folder holds a run already.
        overwrite: with `fresh`, delete the run that is there.

    Returns:
        The trained population.

    Raises:
        UserError: the configuration does not work, or the folder is another's.
        NotFiniteError: a loss or gradient became NaN or infinite; the last checkpoint is good.
        Interrupted: SIGTERM or SIGINT; a checkpoint was written.
    """
    if overwrite and not fresh:
        raise UserError("overwrite needs fresh: without it a run is resumed, never deleted")
    if fresh and (config.out / "config.json").exists() and not overwrite:
        raise UserError(f"{config.out} holds a run; add overwrite to delete it, or choose another")
    settings = stored_settings(config)
    with ExitStack() as stack:
        # Before anything is written: a task that does not exist must leave no folder behind.
        env = make_env(
            config.tasks, config.seeds, threads=config.threads, action_noise=config.action_noise
        )
        stack.callback(env.close)
        env.reset()
        if overwrite and (config.out / "config.json").exists():
            with locked(config.out):
                RunFolder(config.out).start_over(STUDY, settings)
        folder = RunFolder.open(config.out, STUDY, settings)
        stack.enter_context(locked(folder.path))
        # Once more now that it is ours: another process may have started the folder over.
        folder = RunFolder.open(config.out, STUDY, settings)
        if folder.done is None:
            trainer = Trainer(config, env)
            run = _Run(config, folder, trainer, stack)
            with stop_requests() as requests:
                run.go(requests)
    return load(config.out, variant=config.agent.variant, task=config.task)


class _Run:
    """One process's part of a run."""

    def __init__(
        self, config: TrainConfig, folder: RunFolder, trainer: Trainer, stack: ExitStack
    ) -> None:
        self.config, self.folder, self.trainer, self.stack = config, folder, trainer, stack
        self.checkpoints = Checkpoints(folder.path)
        stack.callback(self.checkpoints.close)
        self.metrics = MetricsStore(folder)
        self.evaluator: Evaluator | None = None
        self.wall_before, self.started = 0.0, time.monotonic()
        self.members = [
            {
                "variant": config.agent.variant.name,
                "model": config.agent.model,
                "task": task,
                "seed": seed,
            }
            for task, seed in zip(trainer.env.tasks, config.seeds, strict=True)
        ]
        self.last_return = float("nan")
        self.waited_s = 0.0
        self.flushed = time.monotonic()
        found = self.checkpoints.restore()
        if found is not None:
            try:
                trainer.restore(found)
            except BrokenFileError as error:
                raise UserError(
                    f"{config.out} was begun by another version of the agent: {error}"
                ) from None
            self.wall_before = found.meta["wall_s"]
            self.waited_s, self.last_return = found.meta["waited_s"], found.meta["return"]
        self.metrics.truncate(trainer.step_count if found else -1)
        settings = stored_settings(config)
        self.writers: list[Writer] = [
            make_writer(name, folder.path, settings) for name in config.writers
        ]
        for writer in self.writers:
            stack.callback(writer.close)

    def go(self, requests: Requests) -> None:
        """Trains to the end, or until a signal, a bad number or a full disk stops it."""
        config, trainer = self.config, self.trainer
        total = config.agent_steps
        with Progress(total, "train", "steps", done=trainer.step_count) as self.progress:
            self._announce()
            while trainer.step_count < total:
                if requests.number is not None:
                    self._save()
                    self.checkpoints.wait()
                    self._report_checkpoints()
                    raise Interrupted(requests.number)
                trainer.advance()
                step = trainer.step_count
                last = step == total
                if last or step % config.log_every == 0:
                    self._log()
                if last or (config.eval_every and step % config.eval_every == 0):
                    self._evaluate()
                if last or step % config.checkpoint_every == 0:
                    self._save()
                self.progress.advance(1, self._note())
        self.checkpoints.wait()
        self._report_checkpoints()
        self.metrics.truncate()
        share = self.waited_s / max(self._wall(), 1e-9)
        summary = {"agent_step": total, "wall_s": self._wall(), "checkpoint_share": share}
        self.folder.finish(summary | {"eval_return": self.last_return})

    def _wall(self) -> float:
        return self.wall_before + time.monotonic() - self.started

    def _announce(self) -> None:
        trainer, config = self.trainer, self.config
        rows = trainer.replay.experience.reward.shape[2]
        size = population.replay_bytes(trainer.spec, len(config.tasks), rows)
        start = f"resumed at step {trainer.step_count}" if trainer.step_count else "new run"
        devices = trainer.keys.init.sharding.device_set
        self.progress.say(
            f"{config.out}: {start}; {len(config.tasks)} members on {len(devices)} "
            f"{jax.default_backend()} device{'s' * (len(devices) > 1)}, "
            f"observation {trainer.spec.observation_size}, action {trainer.spec.action_size}; "
            f"replay {rows} rows a member, {size / 2**20:.1f} MiB"
        )

    def _log(self) -> None:
        """One block of metrics leaves the device."""
        self._check()
        values = self.trainer.read_sums()
        seconds = self.trainer.seconds
        whole = max(sum(seconds.values()), 1e-9)
        steps = self.trainer.step_count * len(self.members)
        values |= {f"time/{name}": np.array(part / whole) for name, part in seconds.items()}
        values["time/steps_per_s"] = np.array(steps / max(self._wall(), 1e-9))
        self._record(values)
        returns = values["train_return"]
        if np.isfinite(returns).any():
            self.last_return = float(np.nanmean(returns))

    def _evaluate(self) -> None:
        config, start = self.config, time.monotonic()
        if self.evaluator is None:
            self.evaluator = Evaluator(config, config.eval_episodes)
            self.stack.callback(self.evaluator.close)
        found = self.evaluator.run(self.trainer.state, self.trainer.keys.evaluate)
        took, returns = time.monotonic() - start, found.returns
        values = {"eval_return": returns.mean(axis=1), "optimism": found.optimism.mean(axis=1)}
        self._record(values | {"time/evaluation_s": np.array(took)})
        self.last_return = float(returns.mean())
        each = ", ".join(f"{r:.1f}" for r in returns.mean(axis=1))
        self.progress.say(
            f"step {self.trainer.step_count}: evaluation return {self.last_return:.1f} "
            f"(members {each}; {returns.shape[1]} episodes each, {took:.1f} s)"
        )

    def _record(self, values: dict[str, np.ndarray]) -> None:
        trainer = self.trainer
        step = trainer.step_count
        counters = {
            "agent_step": step,
            "env_step": step * trainer.env.action_repeat,
            "grad_step": trainer.updates,
            "wall_s": self._wall(),
        }
        self.metrics.add(self.members, counters, values)
        if self.writers:
            named = {
                f"{name}/{m['task']}-{m['seed']}": float(value)
                for name, numbers in values.items()
                for m, value in zip(
                    self.members, np.broadcast_to(numbers, len(self.members)), strict=True
                )
            }
            for writer in self.writers:
                writer.write(step, named)
        if time.monotonic() - self.flushed > 10:
            self.metrics.flush()
            self.flushed = time.monotonic()

    def _save(self) -> None:
        """Starts a checkpoint; training goes on while it is written."""
        self._check()
        start = time.monotonic()
        self.metrics.flush()
        arrays, meta, rows = self.trainer.snapshot()
        meta |= {"wall_s": self._wall(), "waited_s": self.waited_s, "return": self.last_return}
        self.checkpoints.save(self.trainer.step_count, arrays, meta, rows)
        self.waited_s += time.monotonic() - start
        self._report_checkpoints()

    def _report_checkpoints(self) -> None:
        for done in self.checkpoints.written():
            self.progress.say(
                f"checkpoint {done.step}: {done.bytes / 1e6:.1f} MB in {done.seconds:.2f} s; "
                f"training has waited {100 * self.waited_s / self._wall():.1f} % of its time"
            )

    def _check(self) -> None:
        problem = self.trainer.problem()
        if problem:
            self.checkpoints.wait()
            steps = self.checkpoints.steps()
            kept = f"the checkpoint of step {steps[-1]} is good" if steps else "no checkpoint yet"
            raise NotFiniteError(f"{problem}; {kept}")

    def _note(self) -> str:
        if not self.progress.due():
            return ""
        seconds = self.trainer.seconds
        whole = max(sum(seconds.values()), 1e-9)
        parts = ", ".join(f"{name} {100 * part / whole:.0f} %" for name, part in seconds.items())
        return f"return {self.last_return:.1f}, {parts}"


def use_cpu_devices(members: int) -> None:
    """Gives every core members of its own, where there is no accelerator.

    One CPU device would learn all members by one program that keeps a single core busy and, from
    four members on, outgrows its cache. Changes JAX's global configuration, so only commands
    call it. What JAX_NUM_CPU_DEVICES says goes first, and a process that has used JAX before
    keeps the devices it has.
    """
    asked: int = jax.config.jax_num_cpu_devices  # type: ignore[attr-defined]
    if asked < 0:
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", cpu_devices(members, usable_cores()))


def cpu_devices(members: int, cores: int) -> int:
    """How many devices the members are spread over: all cores busy, at most two on a device.

    Args:
        members: of the population; devices hold equal numbers of them.
        cores: that may be used.

    Returns:
        The least number that divides the members and is enough.
    """
    enough = max(min(members, cores), -(-members // 2))
    return next(n for n in range(enough, members + 1) if members % n == 0)


def use_compilation_cache(folder: Path) -> None:
    """Keeps compiled programs in a folder, for later runs of equal shapes.

    Changes JAX's global configuration, so only commands call it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 1.0,
    }
    for name, value in settings.items():
        jax.config.update(name, value)
