"""Lab 08, objectives: one file an exercise, in the order of the lab."""

from tinyrl.course.exercises.lab08 import (
    aggregates,
    cispo_loss,
    group_advantages,
    gspo_ratio,
    informative_rows,
    ppo_loss,
    sapo_loss,
    stopped_shares,
)

EXERCISES = (
    ppo_loss.EXERCISE,
    stopped_shares.EXERCISE,
    gspo_ratio.EXERCISE,
    aggregates.EXERCISE,
    group_advantages.EXERCISE,
    informative_rows.EXERCISE,
    sapo_loss.EXERCISE,
    cispo_loss.EXERCISE,
)
