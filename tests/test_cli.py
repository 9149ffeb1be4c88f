import subprocess
import sys

import pytest

import cvaml
from cvaml import cli


def test_help_lists_every_command(capsys):
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    for name, (_, text) in cli.COMMANDS.items():
        assert name in out
        assert text in out


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"cvaml {cvaml.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["calibrate"], "unknown command 'calibrate'; allowed are calibration"),
        (["calibration", "--problem", "3"], "Unrecognized options: --problem"),
        (["calibration", "--problems", "three"], "three"),
    ],
)
def test_user_errors_are_one_line(capsys, arguments, message):
    assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("cvaml: error: ")
    assert message in captured.err


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_explains_its_options(name, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main([name, "--help"])
    assert stop.value.code == 0
    assert f"usage: cvaml {name}" in capsys.readouterr().out


def test_the_installed_command_runs():
    command = [sys.executable, "-m", "cvaml.cli", "nonsense"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
