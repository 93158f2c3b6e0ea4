"""Lab 01, two policies: one file an exercise, in the order of the lab."""

from tinyrl.course.exercises.lab01 import (
    clip_fraction,
    kl_estimates,
    length_growth,
    length_normalised_delta,
    longest_response,
    masked_mean,
    ratio,
    ratio_parts,
    response_logp,
    sequence_delta,
    token_delta,
)

EXERCISES = (
    response_logp.EXERCISE,
    token_delta.EXERCISE,
    sequence_delta.EXERCISE,
    length_normalised_delta.EXERCISE,
    ratio.EXERCISE,
    masked_mean.EXERCISE,
    kl_estimates.EXERCISE,
    ratio_parts.EXERCISE,
    clip_fraction.EXERCISE,
    length_growth.EXERCISE,
    longest_response.EXERCISE,
)
