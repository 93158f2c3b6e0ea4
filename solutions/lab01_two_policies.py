# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 01: two policies
#
# One policy samples a token, another is trained on it. In this lab you write
# the eleven small functions that say how far apart the two are: what a logprob
# is, their difference, what it becomes over a response, and what it does to
# PPO's ratio. 81 minutes, 31 points, eleven exercises of 2 to 15 lines
# and one open question.
#
# **How it works.** Write your code over `raise NotImplementedError()`, run the
# cell, then run the locked test cell under it: it checks your function at once
# and names the mistake, not only that there is one. A second locked cell runs
# it on inputs you do not see. You may also call, in cells of your own:
#
# | call | what it does |
# |---|---|
# | `check("ratio", ratio)` | check an answer |
# | `hint("ratio")` | the next of three hints; `hint("ratio", 1)` the first |
# | `solution("ratio")` | one right answer, once you have had a try checked |
# | `progress()` | how far you have come; kept on this computer only |
#
# If a test says `NameError`, run the cell above it first. After a `SyntaxError`
# it still judges your last version that ran.
# `set_language("zh")` 之后，检查结果和提示都用中文显示。
#
# **The arrays.** `[B, T]`: B responses, T columns of response tokens, padded on
# the right. `logp_train[b, t]` and `logp_rollout[b, t]` are the natural
# logarithms of the probability that the trainer, and the engine that sampled,
# give to response token t itself. `mask` is true on real tokens. **Padding
# holds garbage**, NaN and inf included, as buffers in real systems do. Every
# row has at least one real token. Do not write into your arguments.

# %% nbgrader={"grade": false, "grade_id": "setup", "locked": true, "schema_version": 3, "solution": false, "task": false}
import math

import torch
from torch import Tensor

from tinyrl.course import check, hint, progress, set_language, solution

# %% [markdown]
# Two responses, of three and of two tokens, small enough to do by hand; the
# last column of the second is padding. They are there to try your functions on.
# Guess before you go on: for which of the two do the policies disagree more,
# and which of the two engines finds it the likelier one?

# %% nbgrader={"grade": false, "grade_id": "by_hand", "locked": true, "schema_version": 3, "solution": false, "task": false}
nan = math.nan
by_hand_train = torch.tensor([[-0.5, -1.0, -2.0], [-0.25, -3.0, nan]])
by_hand_rollout = torch.tensor([[-0.6, -1.2, -1.5], [-0.5, -2.0, nan]])
by_hand_mask = torch.tensor([[True, True, True], [True, True, False]])

# %% [markdown]
# ## 1. The logprob of a sampled token · 采样 token 的 logprob
#
# A model reads `ids` (prompt and response, no padding here) and gives `logits`.
# Logits at position $i$ have seen tokens $0..i$ and predict token $i + 1$:
#
# $$\log \pi(a_t \mid s_t) = z_t[a_t] - \log \sum_v e^{z_t[v]}$$
#
# where $z_t$ are the logits that predict $a_t$. Return it for each response
# token. Both engines do this sum; every later difference starts here.
#
# 8 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "response_logp", "locked": false, "schema_version": 3, "solution": true, "task": false}
def response_logp(logits: Tensor, ids: Tensor, prompt_length: int) -> Tensor:
    """Logprob of each response token, natural logarithm.

    logits [B, P + T, V], ids [B, P + T], prompt_length P >= 1  ->  [B, T]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab01-response_logp
    logp = logits[:, prompt_length - 1 : -1].log_softmax(-1)
    return logp.gather(-1, ids[:, prompt_length:, None]).squeeze(-1)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "response_logp_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("response_logp", response_logp)

# %% nbgrader={"grade": true, "grade_id": "response_logp_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("response_logp", response_logp, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab01-response_logp-hidden
from tinyrl.course import check as _check

_check("response_logp", response_logp, seed=4137)
### END HIDDEN TESTS

# %% [markdown]
# ## 2. Token delta · token 级差值
#
# For one and the same token,
#
# $$\Delta_t = \log \pi_{\text{train}}(a_t \mid s_t)
# - \log \pi_{\text{rollout}}(a_t \mid s_t)$$
#
# and 0 on padding. If both engines were one, every delta would be 0.
#
# 4 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "token_delta", "locked": false, "schema_version": 3, "solution": true, "task": false}
def token_delta(
    logp_train: Tensor, logp_rollout: Tensor, mask: Tensor
) -> Tensor:
    """Trainer minus rollout, for each token; 0 on padding.

    logp_train, logp_rollout, mask [B, T]  ->  [B, T]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab01-token_delta
    return torch.where(mask, logp_train - logp_rollout, 0.0)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "token_delta_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("token_delta", token_delta)

# %% nbgrader={"grade": true, "grade_id": "token_delta_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("token_delta", token_delta, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab01-token_delta-hidden
from tinyrl.course import check as _check

_check("token_delta", token_delta, seed=4174)
### END HIDDEN TESTS

# %% [markdown]
# ## 3. Sequence delta · 序列级差值
#
# The probability of a response is the product of its tokens' probabilities, so
#
# $$\Delta_{\text{seq}} = \log \pi_{\text{train}}(y \mid x)
# - \log \pi_{\text{rollout}}(y \mid x) = \sum_{t} \Delta_t$$
#
# over the real tokens of the response, its end-of-sequence token included. Once
# it is right, call it on the two responses from above: were you right as well?
#
# 4 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "sequence_delta", "locked": false, "schema_version": 3, "solution": true, "task": false}
def sequence_delta(
    logp_train: Tensor, logp_rollout: Tensor, mask: Tensor
) -> Tensor:
    """Trainer minus rollout, for each response.

    logp_train, logp_rollout, mask [B, T]  ->  [B]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab01-sequence_delta
    return torch.where(mask, logp_train - logp_rollout, 0.0).sum(-1)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "sequence_delta_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("sequence_delta", sequence_delta)

# %% nbgrader={"grade": true, "grade_id": "sequence_delta_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("sequence_delta", sequence_delta, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab01-sequence_delta-hidden
from tinyrl.course import check as _check

_check("sequence_delta", sequence_delta, seed=4211)
### END HIDDEN TESTS

# %% [markdown]
# ## 4. Length-normalised delta · 按长度归一的差值
#
# A sum says nothing about quality until you know how long it is:
#
# $$\bar\Delta = \frac{1}{|y|} \sum_t \Delta_t$$
#
# with $|y|$ the number of real tokens of that response. Its exp is the ratio
# that GSPO uses, the geometric mean of the token ratios (arXiv 2507.18071).
#
# 4 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "length_normalised_delta", "locked": false, "schema_version": 3, "solution": true, "task": false}
def length_normalised_delta(
    logp_train: Tensor, logp_rollout: Tensor, mask: Tensor
) -> Tensor:
    """Mean token delta of each response.

    logp_train, logp_rollout, mask [B, T]  ->  [B]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab01-length_normalised_delta
    delta = torch.where(mask, logp_train - logp_rollout, 0.0)
    return delta.sum(-1) / mask.sum(-1)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "length_normalised_delta_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("length_normalised_delta", length_normalised_delta)

# %% nbgrader={"grade": true, "grade_id": "length_normalised_delta_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("length_normalised_delta", length_normalised_delta, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab01-length_normalised_delta-hidden
from tinyrl.course import check as _check

_check("length_normalised_delta", length_normalised_delta, seed=4248)
### END HIDDEN TESTS

# %% [markdown]
# ## 5. The importance ratio · 重要性比率
#
# Samples of one policy, an objective of another: each token is weighted by
#
# $$r_t = \frac{\pi_{\text{train}}(a_t \mid s_t)}
# {\pi_{\text{rollout}}(a_t \mid s_t)} = e^{\Delta_t}$$
#
# This one is used in training, so its gradient counts: it flows into
# `logp_train` and nowhere else, and it is finite although the padding holds NaN.
# On padding the ratio is 1.
#
# 7 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "ratio", "locked": false, "schema_version": 3, "solution": true, "task": false}
def ratio(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    """Ratio of each token, 1 on padding; no gradient to logp_rollout.

    logp_train, logp_rollout, mask [B, T]  ->  [B, T]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab01-ratio
    # Clean first, then exp: `where` after exp lets NaN into the gradient.
    delta = torch.where(mask, logp_train - logp_rollout.detach(), 0.0)
    return delta.exp()
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "ratio_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("ratio", ratio)

# %% nbgrader={"grade": true, "grade_id": "ratio_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("ratio", ratio, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab01-ratio-hidden
from tinyrl.course import check as _check

_check("ratio", ratio, seed=4285)
### END HIDDEN TESTS

# %% [markdown]
# ## 6. The mean over real tokens · 真实 token 上的平均
#
# Every metric of the course, and every token-mean loss, is this average:
#
# $$\operatorname{mean}(x) =
# \frac{\sum_{b,t} m_{bt}\, x_{bt}}{\sum_{b,t} m_{bt}}$$
#
# over all real tokens of the batch, each counting the same. (Averaging each
# response first and then the responses is another, also in use.) **The mask may
# have holes**: where a correction drops tokens, it is false in the middle of a
# response, too, so a length does not say which tokens count. x may be 0 on some
# that do.
#
# 5 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "masked_mean", "locked": false, "schema_version": 3, "solution": true, "task": false}
def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Mean of x over the tokens of the whole batch where mask is true.

    x, mask [B, T], mask with holes  ->  scalar []
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab01-masked_mean
    return torch.where(mask, x, 0.0).sum() / mask.sum()
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "masked_mean_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("masked_mean", masked_mean)

# %% nbgrader={"grade": true, "grade_id": "masked_mean_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("masked_mean", masked_mean, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab01-masked_mean-hidden
from tinyrl.course import check as _check

_check("masked_mean", masked_mean, seed=4322)
### END HIDDEN TESTS

# %% [markdown]
# ## 7. K1, K2, K3 · K1、K2、K3
#
# The samples are the rollout's, so they estimate
# $\mathrm{KL}(\pi_{\text{rollout}} \| \pi_{\text{train}})$. Three estimates, each
# a mean over real tokens of a function of $\Delta$:
#
# $$K_1 = -\Delta, \qquad K_2 = \tfrac12 \Delta^2, \qquad
# K_3 = e^{\Delta} - 1 - \Delta$$
#
# Single terms of $K_1$ are negative; $K_3$ never is. In expectation both are the
# KL, so the mean delta is about $-K_3$: where it is not, the logprobs are not
# those of the policy that sampled. $K_2$ is biased, and close while deltas are
# small. Deltas of two float32 engines can be near 1e-4: see that $K_3$ survives
# that. No gradient is needed.
#
# 10 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "kl_estimates", "locked": false, "schema_version": 3, "solution": true, "task": false}
def kl_estimates(
    logp_train: Tensor, logp_rollout: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """K1, K2, K3 of KL(rollout || train), means over real tokens.

    logp_train, logp_rollout, mask [B, T]  ->  three scalars []
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab01-kl_estimates
    d = logp_train[mask].double() - logp_rollout[mask].double()
    return (-d).mean(), (d**2 / 2).mean(), (torch.expm1(d) - d).mean()
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "kl_estimates_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("kl_estimates", kl_estimates)

# %% nbgrader={"grade": true, "grade_id": "kl_estimates_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("kl_estimates", kl_estimates, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab01-kl_estimates-hidden
from tinyrl.course import check as _check

_check("kl_estimates", kl_estimates, seed=4359)
### END HIDDEN TESTS

# %% [markdown]
# ## 8. PPO's ratio, wrong old logprobs · 用错 old logprob 的 PPO 比值
#
# PPO's ratio asks how far the policy has moved since it sampled. The trainer
# now has `logp_train`; when the tokens were sampled it would have said
# `logp_train_old`; the engine that really sampled them said `logp_rollout`. If
# the rollout's logprobs are taken for the old ones, the ratio becomes
#
# $$\underbrace{\frac{\pi_{\text{train}}}{\pi_{\text{rollout}}}}_{\text{merged}}
# = \underbrace{\frac{\pi_{\text{train}}}{\pi_{\text{old}}}}_{\text{drift}}
# \cdot
# \underbrace{\frac{\pi_{\text{old}}}{\pi_{\text{rollout}}}}_{\text{mismatch}}$$
#
# Return all three for each token, 1 on padding. Old and rollout logprobs are
# data: a gradient flows into `logp_train` only.
#
# 8 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "ratio_parts", "locked": false, "schema_version": 3, "solution": true, "task": false}
def ratio_parts(
    logp_train: Tensor,
    logp_train_old: Tensor,
    logp_rollout: Tensor,
    mask: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """merged, drift, mismatch: merged = drift * mismatch, 1 on padding.

    logp_train, logp_train_old, logp_rollout, mask [B, T]  ->  three [B, T]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab01-ratio_parts
    def exp(a: Tensor, b: Tensor) -> Tensor:
        return torch.where(mask, a - b.detach(), 0.0).exp()

    old = logp_train_old.detach()
    merged = exp(logp_train, logp_rollout)
    return merged, exp(logp_train, old), exp(old, logp_rollout)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "ratio_parts_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("ratio_parts", ratio_parts)

# %% nbgrader={"grade": true, "grade_id": "ratio_parts_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("ratio_parts", ratio_parts, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab01-ratio_parts-hidden
from tinyrl.course import check as _check

_check("ratio_parts", ratio_parts, seed=4396)
### END HIDDEN TESTS

# %% [markdown]
# ## 9. The clip fraction at step 0 · 第 0 步的裁剪比例
#
# PPO maximises (arXiv 1707.06347, eq. 7)
#
# $$\min\bigl(r_t A,\ \operatorname{clip}(r_t, 1 - \epsilon, 1 + \epsilon)
# \, A\bigr)$$
#
# Where the minimum takes the clipped term and that is the smaller one, the token
# has no gradient. Return the fraction of real tokens for which it is so; the
# advantage of a response, `advantages[b]`, holds for all its tokens, and with
# $A = 0$ nothing is clipped.
#
# Before the first update the policy has not moved, so with the right old
# logprobs this is exactly 0. With the rollout's as the old ones it need not be.
#
# 8 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "clip_fraction", "locked": false, "schema_version": 3, "solution": true, "task": false}
def clip_fraction(
    logp_train: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    eps: float,
) -> Tensor:
    """Fraction of real tokens whose gradient PPO's clip stops.

    logp_train, logp_old, mask [B, T], advantages [B]  ->  scalar []
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab01-clip_fraction
    r = torch.where(mask, logp_train - logp_old, 0.0).exp()
    a = advantages[:, None]
    clipped = ((a > 0) & (r > 1 + eps)) | ((a < 0) & (r < 1 - eps))
    return (clipped & mask).sum() / mask.sum()
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "clip_fraction_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("clip_fraction", clip_fraction)

# %% nbgrader={"grade": true, "grade_id": "clip_fraction_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("clip_fraction", clip_fraction, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab01-clip_fraction-hidden
from tinyrl.course import check as _check

_check("clip_fraction", clip_fraction, seed=4433)
### END HIDDEN TESTS

# %% [markdown]
# ## 10. T = 1000
#
# Let the deltas of $T$ tokens be independent, each with mean $m$ (the bias) and
# standard deviation $s$ (the noise). What are the mean and the standard
# deviation of the sequence delta? With $m = -0.005$ and $s = 0.1$, which is
# larger at $T = 10$, and which at $T = 1000$? (Two policies whose deltas are
# normal have $m = -s^2 / 2$, or else the probabilities do not sum to 1.)
#
# 5 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "length_growth", "locked": false, "schema_version": 3, "solution": true, "task": false}
def length_growth(
    mean: float, std: float, length: int
) -> tuple[float, float]:
    """Mean and standard deviation of the sum of `length` token deltas."""
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab01-length_growth
    return mean * length, std * math.sqrt(length)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "length_growth_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("length_growth", length_growth)

# %% nbgrader={"grade": true, "grade_id": "length_growth_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("length_growth", length_growth, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab01-length_growth-hidden
from tinyrl.course import check as _check

_check("length_growth", length_growth, seed=4470)
### END HIDDEN TESTS

# %% [markdown]
# ## 11. The longest response within a bound · 不超界的最长回答
#
# A correction that works on sequences keeps a response while its ratio stays
# within $[1 / c,\ c]$. Count an unlucky response as the bias plus $z$ standard
# deviations of noise. What is the largest whole $T$ with
#
# $$|m|\, T + z\, s \sqrt{T} \le \log c \ ?$$
#
# Bias or noise may be 0, not both; $c > 1$. A loop is fine, a formula too.
#
# 8 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "longest_response", "locked": false, "schema_version": 3, "solution": true, "task": false}
def longest_response(mean: float, std: float, bound: float, z: float) -> int:
    """Most tokens for which exp(|mean| T + z std sqrt(T)) <= bound."""
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab01-longest_response
    room, noise = math.log(bound), z * std
    # The quadratic's root, in the form that does not divide by the bias.
    root = 2 * room / (noise + math.sqrt(noise**2 + 4 * abs(mean) * room))
    return math.floor(root**2)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "longest_response_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("longest_response", longest_response)

# %% nbgrader={"grade": true, "grade_id": "longest_response_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("longest_response", longest_response, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab01-longest_response-hidden
from tinyrl.course import check as _check

_check("longest_response", longest_response, seed=4507)
### END HIDDEN TESTS

# %% [markdown]
# ## 12. Open question: a run that looks healthy
#
# 10 minutes, 4 points, read by a person. If you study alone: write yours, then
# `solution("lab01")` shows an answer, and what a marker looks for.

# %% [markdown] nbgrader={"grade": false, "grade_id": "open_rubric", "locked": true, "points": 0, "schema_version": 3, "solution": false, "task": true}
# A team samples with a fast engine and trains with another. They save the
# engine's logprobs and use them as PPO's `old` logprobs. On the first batch,
# before any update: mean delta -0.00125, standard deviation of delta 0.05, K3
# 0.00125, clip fraction 0.001. "All small," they say, "and the loss looks
# fine." Responses have about 2000 tokens.
#
# In at most 200 words: what does their ratio stand for, and what should it be
# at this point? What happens at the level of a whole response (give the two
# numbers)? Why does the loss not show it? What two things would you do, in
# which order, and what would each cost or leave unsolved?
#
# One point for each of the four questions.
#
# === BEGIN MARK SCHEME ===
# canary: TINYRL-CANARY-lab01-open-scheme
#
# 1. Ratio: merged = drift times mismatch; drift is 1 before the first update,
#    so all of it is mismatch between engines. It should be exactly 1, the clip
#    fraction 0. (Half a point for "off-policy" alone.)
# 2. Sequence: bias -0.00125 * 2000 = -2.5, noise 0.05 * sqrt(2000) = 2.24, so
#    the ratio of a typical response is e^-2.5 = 0.08; a bound near 2 either
#    way rejects most responses. Both numbers are needed.
# 3. The loss is a surrogate whose value says nothing by itself: with
#    normalised advantages it is near 0 whatever happens, the clip hides the
#    large ratios, and the reward logged is the sampler's own.
# 4. First align (precision, raw or processed logprobs, template, positions)
#    and recompute the old logprobs in the trainer: costs one forward pass,
#    makes drift right, but the samples still come from the other policy. Then
#    correct that by importance weights, truncated or masked: trades bias for
#    variance. Any sound pair with its cost and its limit counts; "lower the
#    learning rate" does not.
# === END MARK SCHEME ===

# %% [markdown] nbgrader={"grade": true, "grade_id": "open_answer", "locked": false, "points": 4, "schema_version": 3, "solution": true, "task": false}
# ### BEGIN SOLUTION
# canary: TINYRL-CANARY-lab01-open-answer
#
# Before the first update the trainer has not moved, so a ratio against its own
# old logprobs is exactly 1 and nothing is clipped. Theirs is drift times
# mismatch with drift 1: it measures the two engines, not the policy's
# progress, and one token in a thousand loses its gradient to it. Over 2000
# tokens the bias sums to -2.5 and the noise to 0.05 * sqrt(2000) = 2.2, so a
# typical response's ratio is e^-2.5 = 0.08: K3 does not show it, because it is
# a number per token. Nor does the loss: a clipped surrogate with normalised
# advantages is near 0 whatever happens, and the logged reward is the
# sampler's. First I would align what can be aligned (precision, raw or
# processed logprobs, template) and recompute the old logprobs in the trainer:
# one more forward pass, and the clip then works on drift alone, but the
# samples are still the engine's. Then I would weight by truncated or masked
# importance ratios against the engine's logprobs, which repairs that at the
# price of variance, or of bias by truncation.
# ### END SOLUTION

# %% [markdown]
# You are done. `progress()` shows what is left; notebook 01 shows the same
# numbers on a model that is being trained.
