"""Lab 04, kernels: one file an exercise, in the order of the lab."""

from tinyrl.course.exercises.lab04 import (
    cached_attention,
    chunk_mask,
    merge_parts,
    online_step,
    parallel_logp,
    ranked_sum,
    same_bits,
    unfused_norm,
)

EXERCISES = (
    online_step.EXERCISE,
    merge_parts.EXERCISE,
    parallel_logp.EXERCISE,
    unfused_norm.EXERCISE,
    cached_attention.EXERCISE,
    chunk_mask.EXERCISE,
    ranked_sum.EXERCISE,
    same_bits.EXERCISE,
)
