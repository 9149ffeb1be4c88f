"""One episode as a film; runs in a process of its own, with the rendering backend chosen."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SIZE = (320, 240)
FRAMES_PER_SECOND = 25


def check() -> None:
    """Draws one picture, or dies trying."""
    import mujoco

    model = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><geom size='1'/></worldbody></mujoco>"
    )
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    with mujoco.Renderer(model, 32, 32) as renderer:
        renderer.update_scene(data)
        if renderer.render().shape != (32, 32, 3):
            raise RuntimeError("the picture has another size than asked for")


def film(run: Path, member: int, seed: int, out: Path) -> int:
    """Films one greedy episode.

    Args:
        run: the run folder.
        member: which member acts.
        seed: of the episode.
        out: the file to write.

    Returns:
        The number of frames.
    """
    import imageio.v2 as imageio
    import jax

    from cvaml.agent.evaluate import MAX_STEPS
    from cvaml.agent.load import load
    from cvaml.envs.member import Member

    agent = load(run).member(member)
    task = agent.config.task[0]
    env, camera, repeat = _environment(str(task))
    body = Member(env, repeat)
    obs, key = body.reset(seed), jax.random.key(seed)
    out.parent.mkdir(parents=True, exist_ok=True)
    frames = 0
    writer: Any
    with imageio.get_writer(out, fps=FRAMES_PER_SECOND, macro_block_size=16) as writer:
        for step in range(MAX_STEPS):
            writer.append_data(camera())
            frames += 1
            action = agent.act(obs, jax.random.fold_in(key, step))
            obs, _, terminated, truncated, *_ = body.step(np.asarray(action), seed)
            if terminated or truncated:
                break
    body.close()
    return frames


def _environment(task: str) -> tuple[Any, Any, int]:
    """The environment, a function that draws it, and its action repeat."""
    import gymnasium

    from cvaml.envs.member import SuiteEnv, suite_module

    suite = [f"{domain}-{name}" for domain, name in suite_module().ALL_TASKS]
    if task in suite:
        env = SuiteEnv(task)
        return env, _camera(env._env.physics), 2
    made = gymnasium.make(task, render_mode="rgb_array", disable_env_checker=True)
    return made, made.render, 1


def _camera(physics: Any) -> Callable[[], np.ndarray]:
    """Draws the simulation through its first camera; dm_control's own rendering is switched off."""
    import mujoco

    width, height = SIZE
    renderer = mujoco.Renderer(physics.model.ptr, height, width)
    camera = 0 if physics.model.ncam else -1

    def draw() -> np.ndarray:
        renderer.update_scene(physics.data.ptr, camera=camera)
        return np.asarray(renderer.render())

    return draw


if __name__ == "__main__":
    film(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
