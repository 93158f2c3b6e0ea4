"""Policy losses as compositions: ratio(level) -> gate -> aggregate.

Every objective takes `logp [B, T]` (with gradient), `logp_old [B, T]`, `advantages` (`[B]`,
the same for all tokens of a response, or `[B, T]`) and `mask [B, T]`, and returns the
scalar to minimise:

| objective  | ratio     | gate            | average       | source (arXiv)           |
|------------|-----------|-----------------|---------------|--------------------------|
| ppo        | token     | clip, dual clip | token_mean    | 1707.06347, 1912.09729   |
| grpo       | token     | clip            | sequence_mean | 2402.03300               |
| dr_grpo    | token     | clip            | constant      | 2503.20783               |
| dapo       | token     | clip            | token_mean    | 2503.14476               |
| gspo       | geometric | clip            | sequence_mean | 2507.18071               |
| gspo_token | geometric | clip            | sequence_mean | 2507.18071 §4.3          |
| sapo       | token     | soft            | sequence_mean | 2511.20347               |
| cispo      | token     | capped          | token_mean    | 2506.13585, 2510.13786   |
| reinforce  | -         | none            | sequence_sum  | Williams 1992            |

Keywords that they share:

- `weight [B, T]` multiplies each token's loss and gets no gradient: the importance weight
  of a `Correction`, in the decoupled form (arXiv 2110.00641)
- `aggregation` and, for "constant", `length`: see `aggregate`
- `counted [B, T]`, bool: whose tokens the denominator counts. None: those of `mask`, that
  is, what a correction kept. The mask from before it: all of them

What went on in a loss is told by `diagnostics`, from the same arrays.
"""

from ..logprobs import one_of
from .aggregation import Aggregation, aggregate
from .clipping import dapo, dr_grpo, grpo, gspo, gspo_token, ppo
from .gates import clip, soft_gate
from .health import diagnostics
from .ratios import MAX_LOG_RATIO, Level, at_level, exp_ratio, of_response, pool, ratio
from .view import LossView, Objective
from .weighting import cispo, reinforce, sapo

__all__ = [
    "MAX_LOG_RATIO",
    "Aggregation",
    "Level",
    "LossView",
    "Objective",
    "aggregate",
    "at_level",
    "cispo",
    "clip",
    "dapo",
    "diagnostics",
    "dr_grpo",
    "exp_ratio",
    "grpo",
    "gspo",
    "gspo_token",
    "of_response",
    "one_of",
    "pool",
    "ppo",
    "ratio",
    "reinforce",
    "sapo",
    "soft_gate",
]
