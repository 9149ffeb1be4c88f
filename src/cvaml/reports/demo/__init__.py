"""Small results of real runs, shipped so that a report can be seen before anything is run."""

from pathlib import Path


def demo_folder() -> Path:
    """The folder of the shipped run folders."""
    return Path(__file__).parent
