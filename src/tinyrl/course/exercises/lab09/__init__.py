"""Lab 09, corrections: one file an exercise, in the order of the lab."""

from tinyrl.course.exercises.lab09 import (
    bounded_weights,
    decoupled_loss,
    exact_bias,
    kept_responses,
    normalised_weights,
    stale_negatives,
    weight_ess,
    weight_levels,
)

EXERCISES = (
    weight_levels.EXERCISE,
    bounded_weights.EXERCISE,
    weight_ess.EXERCISE,
    normalised_weights.EXERCISE,
    kept_responses.EXERCISE,
    exact_bias.EXERCISE,
    decoupled_loss.EXERCISE,
    stale_negatives.EXERCISE,
)
