"""Lab 03, number formats: one file an exercise, in the order of the lab."""

from tinyrl.course.exercises.lab03 import (
    cast,
    decode,
    error_factor,
    flushed_share,
    largest_scale,
    quantise_rows,
    round_nearest,
    running_sum,
    spacing,
    stable_logsumexp,
)

EXERCISES = (
    decode.EXERCISE,
    spacing.EXERCISE,
    round_nearest.EXERCISE,
    cast.EXERCISE,
    running_sum.EXERCISE,
    stable_logsumexp.EXERCISE,
    flushed_share.EXERCISE,
    largest_scale.EXERCISE,
    quantise_rows.EXERCISE,
    error_factor.EXERCISE,
)
