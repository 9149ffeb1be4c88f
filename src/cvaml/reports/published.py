"""Published returns of other methods, shipped as a small table of means."""

from importlib import resources

import pandas as pd

ALL_TASKS = "mean of 7 tasks"
"""The task name of the rows that average the seven tasks."""

SOURCE = (
    "Returns of other methods come from the result files their authors published: TD-MPC2's "
    "repository for TD-MPC2, TD-MPC, DreamerV3 and SAC; SimBa's for SimBa, BRO and TD7; MR.Q's "
    "own logs. They were not run again here."
)

NAMES = {
    "bro": "BRO",
    "dreamerv3": "DreamerV3",
    "mrq": "MR.Q",
    "sac": "SAC",
    "simba-ddpg": "SimBa-DDPG",
    "simba-sac": "SimBa-SAC",
    "simba-tdmpc2": "TD-MPC2+SimBa",
    "td7": "TD7",
    "tdmpc": "TD-MPC",
    "tdmpc2": "TD-MPC2",
}


def published_returns() -> pd.DataFrame:
    """Mean returns of published methods on humanoid and dog.

    Returns:
        Columns `method`, `task` (the seven tasks and `ALL_TASKS`), `env_step`, `mean`, `low`,
        `high` (95 % bootstrap interval over runs, stratified by task) and `runs`.
    """
    with resources.files("cvaml.reports").joinpath("published/dmc_returns.csv").open() as file:
        table = pd.read_csv(file)
    table["method"] = table["method"].map(NAMES)
    return table


def published_at(env_step: int) -> pd.DataFrame:
    """The seven-task means of all methods at one environment step, best first.

    Args:
        env_step: a step at which a method was evaluated; methods that were not are left out.
    """
    table = published_returns()
    rows = table[(table["task"] == ALL_TASKS) & (table["env_step"] == env_step)]
    return rows.sort_values("mean", ascending=False, ignore_index=True)
