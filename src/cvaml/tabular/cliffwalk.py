"""Gymnasium's cliffwalk on a small grid, with a probability of going where one meant to go.

```
 .  .  .  .  .        5 x 5 by default; a cell is number row * columns + column
 .  .  .  .  .        S  start, bottom left
 .  .  .  .  .        C  cliff: costs 100 and puts the walker back at S
 .  .  .  .  .        G  goal, bottom right: the episode ends
 S  C  C  C  G        every step costs 1, also the last; a wall leaves the walker in place
```
"""

from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

from cvaml.tabular.mdp import FiniteMDP
from cvaml.types import UserError

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""Up, right, down, left: the order of Gymnasium's actions."""
STEP_REWARD, CLIFF_REWARD = -1.0, -100.0

Cliff = Literal["reset", "end"]


def cliffwalk(
    temp: float,
    discount: float = 0.9,
    cliff: Cliff = "reset",
    shape: tuple[int, int] = (5, 5),
) -> FiniteMDP:
    """The cliffwalk as a finite MDP with the exact expected rewards.

    The walker moves in the intended direction with probability `temp`, in each of the other
    three with a third of the rest. With `temp` 1 this is Gymnasium's table. Cells of a cliff
    that resets are never entered; they have the moves of any other cell, as in Gymnasium.

    Args:
        temp: probability of the intended direction, in (0, 1].
        discount: γ.
        cliff: what a fall does after its cost of 100: `"reset"` puts the walker back at the
            start, `"end"` ends the episode.
        shape: rows and columns, at least 2 and 3.

    Returns:
        The MDP, with the goal terminal, and the cliff too if it ends the episode.

    Raises:
        UserError: `temp` is no such probability.
    """
    check_temp(temp)
    rows, columns = shape
    states, actions = rows * columns, len(MOVES)
    falls, start = cliff_cells(shape), start_cell(shape)
    arrivals = np.zeros((states, actions, states))
    costs = np.zeros((states, actions))
    for row, column in np.ndindex(shape):
        for action, (down, right) in enumerate(MOVES):
            to = min(max(row + down, 0), rows - 1), min(max(column + right, 0), columns - 1)
            cell, arrival = row * columns + column, to[0] * columns + to[1]
            lands = start if cliff == "reset" and falls[arrival] else arrival
            arrivals[cell, action, lands] = 1
            costs[cell, action] = CLIFF_REWARD if falls[arrival] else STEP_REWARD
    other = (1 - temp) / (actions - 1)
    directions = np.full((actions, actions), other) + (temp - other) * np.eye(actions)
    terminal = np.arange(states) == goal_cell(shape)
    if cliff == "end":
        terminal |= falls
    return FiniteMDP(
        transitions=np.einsum("ad,xdy->xay", directions, arrivals),
        rewards=costs @ directions.T,
        discount=discount,
        terminal=terminal,
    )


def start_cell(shape: tuple[int, int] = (5, 5)) -> int:
    """Number of the start's cell, bottom left."""
    return (shape[0] - 1) * shape[1]


def goal_cell(shape: tuple[int, int] = (5, 5)) -> int:
    """Number of the goal's cell, bottom right."""
    return shape[0] * shape[1] - 1


def cliff_cells(shape: tuple[int, int] = (5, 5)) -> Bool[np.ndarray, " n"]:
    """Which cells are cliff: the bottom row between start and goal."""
    cells = np.arange(shape[0] * shape[1])
    return np.asarray((cells > start_cell(shape)) & (cells < goal_cell(shape)))


def draw_policy(policy: Float[np.ndarray, "n a"], shape: tuple[int, int] = (5, 5)) -> str:
    """A deterministic policy as text: arrows, `C` for cliff, `G` for the goal."""
    arrows = np.array(list("↑→↓←"))[policy.argmax(axis=1)]
    marks = np.where(cliff_cells(shape), "C", arrows)
    marks[goal_cell(shape)] = "G"
    return "\n".join(" ".join(row) for row in marks.reshape(shape))


def check_temp(temp: float) -> None:
    """Raises UserError unless `temp` is a probability above 0."""
    if not 0 < temp <= 1:
        raise UserError(
            f"temp is the probability of the intended direction, above 0 and at most 1, got {temp}"
        )
