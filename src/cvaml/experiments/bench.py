"""`cvaml bench train`: how close training comes to the bare simulator, measured in one run."""

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from cvaml.types import UserError, usable_cores

if TYPE_CHECKING:
    from cvaml.agent.train_config import TrainConfig
    from cvaml.agent.trainer import Trainer
    from cvaml.envs.speed import Recording

RATES = ("bare_physics", "planning", "update", "training")
EVALUATE_EVERY_ENV_STEPS = 50_000
RECORDINGS, RECORDED_STEPS = 20, 25
"""How many stretches of the training, and how long, the bare simulator repeats."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Measure bare physics, planning, updates and the full training loop on this machine."""

    what: tyro.conf.Positional[Literal["train"]]
    """What to measure."""
    task: tuple[str, ...] = ("dog-run",)
    """dm_control tasks with equal spaces; --members of each."""
    members: int = 8
    """Members of each task."""
    preset: Literal["paper", "small"] = "paper"
    """Sizes of networks and planner."""
    variant: str = "cvaml-1-0"
    """How model and value are trained."""
    model: Literal["stochastic", "deterministic"] = "stochastic"
    """A Gaussian latent model, or a deterministic one."""
    set: Annotated[tuple[tuple[str, ...], ...], tyro.conf.UseAppendAction] = ()
    """key=value for any setting of the agent."""
    seconds: float = 120.0
    """How long the full loop is timed, after compilation."""
    threads: int | None = None
    """Threads of the simulator, in training and bare alike; one per core if not given."""
    against: tuple[Path, ...] = ()
    """Earlier JSON files to compare with."""
    out: Path = Path("runs/bench.json")
    """Where the JSON goes."""
    compilation_cache: bool = True
    """Keep compiled programs in the user's cache folder ($XDG_CACHE_HOME or ~/.cache)."""


def main(config: Config) -> int:
    """Runs the benchmark and prints its table."""
    earlier = [_read(path) for path in config.against]
    run = _run_config(config)
    from cvaml.agent.train import use_compilation_cache, use_cpu_devices
    from cvaml.experiments.train import cache_folder

    if config.compilation_cache:
        use_compilation_cache(cache_folder())
    use_cpu_devices(len(run.tasks))
    found = measure(run, config.seconds)
    config.out.parent.mkdir(parents=True, exist_ok=True)
    config.out.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found, earlier))
    print(f"\n{config.out}")
    return 0


def measure(config: "TrainConfig", seconds: float) -> dict[str, Any]:
    """Everything the benchmark reports, as JSON values; rates are agent steps/s of all members."""
    import jax
    import numpy as np

    from cvaml.agent.trainer import Trainer
    from cvaml.envs import make_env
    from cvaml.envs.speed import bare_physics, replayed_physics

    env = make_env(config.tasks, config.seeds, threads=config.threads)
    env.reset()
    members = env.members
    bare = bare_physics(env, min(seconds, 5.0))
    trainer = Trainer(config, env)
    compile_s = _warm_up(trainer)
    parts = _parts(trainer, min(seconds / 10, 5.0))
    steps, loop_s, recordings = _loop(trainer, seconds)
    evaluation_s = _evaluation_seconds(trainer)
    # An evaluation is charged by its share of the interval, whether or not one fell in the time.
    every = EVALUATE_EVERY_ENV_STEPS / env.action_repeat
    training = steps * members / (loop_s + evaluation_s * steps / every)
    along = [replayed_physics(env, recordings) for _ in range(2)]
    env.close()
    flops = _flops(trainer)
    memory = jax.local_devices()[0].memory_stats() or {}
    return {
        "bare_physics": sum(along) / 2,
        "bare_physics_twice": along,
        "bare_physics_random_actions": bare,
        "planning": members / parts["planning"],
        "update": members / parts["update"],
        "training": training,
        "ratio": training / (sum(along) / 2),
        "ratio_random_actions": training / bare,
        "device": jax.local_devices()[0].device_kind,
        "task": list(config.task),
        "members": members,
        "timed_s": loop_s,
        "evaluation_s": evaluation_s,
        "ms_per_agent_step": {
            "bare_physics": 2e3 * members / sum(along),
            "planning": 1e3 * parts["planning"],
            "update": 1e3 * parts["update"],
            "training": 1e3 * members / training,
        },
        "gflop_per_agent_step": {name: value / 1e9 for name, value in flops.items()},
        "tflops": sum(flops.values()) * training / members / 1e12,
        "matrix_tflops": _matrix_rate(),
        "compile_s": compile_s,
        "memory_gib": int(memory.get("peak_bytes_in_use", 0)) / 2**30,
        "threads": config.threads or usable_cores(),
        "configuration": _hash(config),
        "commit": _commit(),
        "updates": int(np.asarray(trainer.updates)),
    }


def _run_config(config: Config) -> "TrainConfig":
    from cvaml.agent.config import preset
    from cvaml.agent.config_text import override
    from cvaml.agent.train_config import train_preset
    from cvaml.experiments.train import parse_settings

    if config.seconds <= 0:
        raise UserError(f"--seconds must be above 0, got {config.seconds}")
    agent = preset(config.preset, variant=config.variant, model=config.model)
    agent = override(agent, {"random_steps": "100", **parse_settings(config.set)})
    run = train_preset(config.preset, config.out, agent)
    # Replay at the size of a whole run, so that its memory traffic is what training sees.
    return dataclasses.replace(
        run, task=config.task, members=config.members, threads=config.threads
    )


def _loop(trainer: "Trainer", seconds: float) -> tuple[int, float, list["Recording"]]:
    """Trains for so long; returns agent steps, seconds, and stretches of it for the simulator."""
    import jax
    import numpy as np

    from cvaml.envs.speed import Recording

    recordings: list[Recording] = []
    start, steps = time.perf_counter(), 0
    while (spent := time.perf_counter() - start) < seconds or not recordings:
        state, ended, actions = None, False, []
        if spent >= seconds * len(recordings) / RECORDINGS:
            state = trainer.env.state()
        for _ in range(RECORDED_STEPS):
            trainer.advance()
            steps += 1
            ended |= trainer.episode_ended
            actions.append(trainer.last_action)
            if steps % trainer.config.log_every == 0:
                trainer.read_sums()
        if state is not None and not ended:
            recordings.append(Recording(state, np.stack(actions)))
    jax.block_until_ready(trainer.state)
    return steps, time.perf_counter() - start, recordings


def _warm_up(trainer: "Trainer") -> dict[str, float]:
    """Compiles everything the loop calls; returns the seconds of the first learning step."""
    import jax

    while not trainer.learns:
        trainer.advance()
    start = time.perf_counter()
    trainer.advance()
    jax.block_until_ready(trainer.state)
    first_s = time.perf_counter() - start
    for _ in range(20):
        trainer.advance()
    start = time.perf_counter()
    trainer.read_sums()
    return {"act_and_update": first_s, "diagnose": time.perf_counter() - start}


def _parts(trainer: "Trainer", seconds: float) -> dict[str, float]:
    """Seconds per call of planning and of one step's updates, each alone."""
    import jax

    from cvaml.agent import population

    agent = trainer.config.agent
    observation = trainer.env.obs
    count = iter(range(10**9))

    def plan() -> None:
        step = next(count)
        keys = trainer.keys.act
        acted = population.act(trainer.state, observation, keys, agent, explore=True, step=step)
        jax.block_until_ready(acted[0])

    planned = population.act(trainer.state, observation, trainer.keys.act, agent, explore=True)[1]

    def update() -> None:
        trainer.learn(planned)
        jax.block_until_ready(trainer.state)

    return {"planning": _seconds(plan, seconds), "update": _seconds(update, seconds)}


def _evaluation_seconds(trainer: "Trainer") -> float:
    """Seconds of one evaluation, from its first tenth, once its program is compiled."""
    from cvaml.agent.evaluate import Evaluator
    from cvaml.envs.member import EPISODE_STEPS

    config, keys = trainer.config, trainer.keys.evaluate
    evaluator = Evaluator(config, config.eval_episodes)
    evaluator.compile(trainer.state, keys)
    whole = EPISODE_STEPS // trainer.env.action_repeat
    start = time.perf_counter()
    evaluator.run(trainer.state, keys, steps=whole // 10)
    seconds = time.perf_counter() - start
    evaluator.close()
    return seconds * whole / (whole // 10)


def _seconds(call: Callable[[], None], budget: float) -> float:
    """Mean seconds of a call, after two that do not count."""
    call()
    call()
    start, calls = time.perf_counter(), 0
    while time.perf_counter() - start < budget:
        call()
        calls += 1
    return (time.perf_counter() - start) / calls


def _flops(trainer: "Trainer") -> dict[str, float]:
    """Matrix operations of one agent step of all members."""
    from cvaml.agent import population
    from cvaml.agent.flops import count_flops

    agent, keys = trainer.config.agent, trainer.keys

    def plan(state: Any, observation: Any) -> Any:
        return population.act(state, observation, keys.act, agent, explore=True)

    def update(state: Any, replay: Any) -> Any:
        return population.update(state, replay, keys.update, agent, agent.updates_per_step)

    return {
        "planning": count_flops(plan, trainer.state, trainer.env.obs),
        "update": count_flops(update, trainer.state, trainer.replay),
    }


def _matrix_rate(size: int = 4096) -> dict[str, float]:
    """TFLOP/s of a large matrix product on this device, by arithmetic."""
    import jax
    import jax.numpy as jnp

    cpu = jax.default_backend() == "cpu"
    size = 1024 if cpu else size
    rates = {}
    for name, dtype, precision in (
        ("float32", jnp.float32, "highest"),
        ("tf32", jnp.float32, "tensorfloat32"),
        ("bfloat16", jnp.bfloat16, "default"),
    ):
        with jax.default_matmul_precision(precision):
            x = jax.random.normal(jax.random.key(0), (size, size), dtype)
            product = partial(jax.jit(jnp.matmul), x, x)
            each = _seconds(partial(_settled, product), 0.5)
        rates[name] = 2 * size**3 / each / 1e12
    return rates


def _settled(call: Callable[[], Any]) -> None:
    """Calls and waits for the device."""
    import jax

    jax.block_until_ready(call())


def table(found: dict[str, Any], earlier: list[dict[str, Any]]) -> str:
    """The result for a person, with earlier ones beside it."""
    columns = [found, *earlier]
    names = ["this run", *(str(e.get("commit", ""))[:7] or "earlier" for e in earlier)]
    lines = [
        f"{', '.join(found['task'])} x {found['members']} members on {found['device']}, "
        f"{found['threads']} simulator threads, {found['timed_s']:.0f} s timed",
        "",
        "agent steps/s".ljust(16) + "".join(name.rjust(14) for name in names),
    ]
    for rate in RATES:
        numbers = "".join(f"{column[rate]:14,.0f}" for column in columns)
        each = found["ms_per_agent_step"][rate]
        lines.append(f"{rate:16}{numbers}   {each:8.2f} ms a step")
    lines.append("ratio".ljust(16) + "".join(f"{column['ratio']:14.3f}" for column in columns))
    lines.append(
        "bare physics along the training's own trajectories; with random actions from the start "
        f"it does {found['bare_physics_random_actions']:,.0f} (ratio "
        f"{found['ratio_random_actions']:.3f})"
    )
    flop, rates = found["gflop_per_agent_step"], found["matrix_tflops"]
    shares = ", ".join(
        f"{100 * found['tflops'] / rate:.1f} % of {name}" for name, rate in rates.items()
    )
    lines += [
        "",
        f"matrix work a step: planning {flop['planning']:.1f} GFLOP, update {flop['update']:.1f} "
        f"GFLOP; {found['tflops']:.2f} TFLOP/s ({shares} as measured here)",
        f"first learning step {found['compile_s']['act_and_update']:.1f} s, evaluation "
        f"{found['evaluation_s']:.1f} s, memory {found['memory_gib']:.2f} GiB",
    ]
    return "\n".join(lines)


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from None
    missing = [name for name in (*RATES, "ratio") if name not in found]
    if missing:
        raise UserError(f"{path} is no benchmark result: it lacks {', '.join(missing)}")
    return found


def _hash(config: "TrainConfig") -> str:
    """A short name of everything that determines the work of a step."""
    from cvaml.agent.train_config import stored_settings

    text = json.dumps(stored_settings(config), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _commit() -> str:
    from cvaml.runs.folder import provenance

    return str(provenance()["commit"])
