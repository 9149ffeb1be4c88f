"""The package as a user installs it: what it pulls in, how long it takes, what it carries."""

import json
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import cvaml

ROOT = Path(__file__).parents[1]


def run_python(code: str, python: str = sys.executable) -> str:
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_is_light():
    code = """
import sys, time, jax, jax.numpy, json
start = time.perf_counter()
import cvaml
seconds = time.perf_counter() - start
heavy = {"mujoco", "dm_control", "matplotlib", "ray", "pandas", "torch"} & set(sys.modules)
print(json.dumps([seconds, sorted(heavy)]))
"""
    seconds, heavy = min(json.loads(run_python(code)) for _ in range(2))
    assert heavy == []
    assert seconds < 1


def test_public_names_exist():
    for name in cvaml.__all__:
        assert getattr(cvaml, name) is not None


def test_base_install_needs_neither_physics_nor_ray():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    base = " ".join(project["dependencies"])
    assert not re.search("mujoco|dm-control|ray|torch", base)
    assert set(project["optional-dependencies"]) == {"control", "sweep", "torch", "dev"}


def test_constraints_hold_versions_only():
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9_.\-]+==[A-Za-z0-9_.!+\-]+", line), line


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Wheel and sdist built with the tools of this environment."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_wheel_and_sdist_carry_what_they_must(built):
    (wheel,) = built.glob("*.whl")
    (sdist,) = built.glob("*.tar.gz")
    assert f"cvaml-{cvaml.__version__}-" in wheel.name
    assert sdist.name == f"cvaml-{cvaml.__version__}.tar.gz"
    names = zipfile.ZipFile(wheel).namelist()
    assert "cvaml/py.typed" in names
    assert "cvaml/losses/vaml.py" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_wheel_installs_into_an_empty_environment(built, tmp_path):
    """The dependencies are lent by this environment; the package itself comes from the wheel."""
    (wheel,) = built.glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=False)
    python = str(tmp_path / "venv" / "bin" / "python")
    site = Path(run_python("import site; print(site.getsitepackages()[0])", python).strip())
    target = ["--target", str(site), "--no-deps", "--quiet", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", "install", *target], check=True, timeout=120)
    import numpy

    lent = str(Path(numpy.__file__).parents[1])
    code = f"""
import sys; sys.path.append({lent!r})
import cvaml; print(cvaml.__file__); print(cvaml.cvaml_loss.__module__)
"""
    found = run_python(code, python)
    assert str(tmp_path) in found
