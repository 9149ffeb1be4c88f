"""The `cvaml` command: one subcommand per experiment or action, each imported only when called."""

import contextlib
import importlib
import io
import os
import re
import sys
from collections.abc import Sequence

import cvaml
from cvaml.types import UserError

# name -> module that has a frozen dataclass `Config` and `main(config)`, and one line of help
COMMANDS = {
    "calibration": ("cvaml.experiments.calibration", "Recompute the paper's theory as numbers."),
    "train": ("cvaml.experiments.train", "Train a population of agents, or go on with one."),
    "garnet": ("cvaml.experiments.garnet", "Value error of low-rank models on random chains."),
    "garnet-tune": ("cvaml.experiments.garnet_tune", "Sweep the step sizes of the garnet study."),
    "cliffwalk": ("cvaml.experiments.cliffwalk", "Control with low-rank models on a cliff."),
    "bench": ("cvaml.experiments.bench", "Measure training against the bare simulator."),
    "evaluate": ("cvaml.experiments.evaluate", "Evaluate a trained run, and film it."),
    "sweep": ("cvaml.experiments.sweep", "Run a study's cells, here or on a Ray cluster."),
    "runs": ("cvaml.experiments.runs", "List, show or export runs."),
    "report": ("cvaml.experiments.report", "Build one page and figures from run folders."),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if arguments[0] == "--version":
        print(f"cvaml {cvaml.__version__}")
        return 0
    name, *rest = arguments
    try:
        if name not in COMMANDS:
            raise UserError(f"unknown command {name!r}; allowed are {', '.join(COMMANDS)}")
        module = importlib.import_module(COMMANDS[name][0])
        return module.main(_parse(module.Config, name, rest)) or 0
    except UserError as error:
        print(f"cvaml: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output, `head` for instance, is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("cvaml: interrupted", file=sys.stderr)
        return 130


def _overview() -> str:
    lines = [f"  {name:14} {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: cvaml COMMAND [OPTIONS]",
            "",
            "Calibrated value-aware model learning: losses, studies and agents.",
            "",
            "commands:",
            *lines,
            "",
            "`cvaml COMMAND --help` lists the options of a command; `cvaml --version` the version.",
        ]
    )


def _parse(config: type, name: str, arguments: list[str]) -> object:
    """The configuration given on the command line; tyro's boxed errors become one line."""
    import tyro

    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(config, prog=f"cvaml {name}", args=arguments)
    except SystemExit as stop:
        if stop.code == 0:
            raise
        lines = [re.sub(r"[╭╮╰╯│─]+", " ", line).strip() for line in errors.getvalue().splitlines()]
        raise UserError("; ".join(line for line in lines if line)) from None


if __name__ == "__main__":
    sys.exit(main())
