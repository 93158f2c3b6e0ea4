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
# # Lab 09: corrections
#
# Tokens come from one policy and train another. What is left of the difference,
# once everything that could be made equal is equal, is weighed or dropped. In
# this lab you write the weight at its three levels, truncate and mask it,
# measure what is left of a batch, find the exact bias of a cap, and put three
# policies into one loss. 73 minutes, 26 points, eight exercises of 2 to 7 lines
# and one open question.
#
# **How it works.** Write your code over `raise NotImplementedError()`, run the
# cell, then run the locked test cell under it: it checks your function at once
# and names the mistake. A second locked cell runs it on inputs you do not see.
# `hint("weight_ess")` gives the next of three hints, `solution("weight_ess")`
# one right answer once you have had a try checked, `progress()` how far you are.
# If a test says `NameError`, run the cell above it first. After a `SyntaxError`
# it still judges your last version that ran.
# `set_language("zh")` 之后，检查结果和提示都用中文显示。
#
# **The arrays.** B responses of T columns, padded on the right; `mask [B, T]`
# is true on real tokens. $\rho = p_\text{train} / p_\text{rollout}$, of
# logprobs that are natural logarithms. Every response has a token. **Padding
# holds garbage**, NaN or inf. A weight is a number beside the loss: no gradient
# comes through it. Do not write into your arguments. Return tensors, not lists.

# %% nbgrader={"grade": false, "grade_id": "setup", "locked": true, "schema_version": 3, "solution": false, "task": false}
import math

import torch
from torch import Tensor

from tinyrl.course import check, hint, progress, set_language, solution

# %% [markdown]
# Two responses, of three tokens and of two, to try your functions on. Guess
# before you go on: which of the two has the larger product of ratios, and which
# the larger geometric mean?

# %% nbgrader={"grade": false, "grade_id": "by_hand", "locked": true, "schema_version": 3, "solution": false, "task": false}
train = torch.tensor([[-0.5, -1.0, -2.0], [-0.25, -3.0, 0.0]])
rollout = torch.tensor([[-0.9, -1.2, -2.05], [-0.5, -3.3, 0.0]])
mask = torch.tensor([[True, True, True], [True, True, False]])

# %% [markdown]
# ## 1. One weight, three levels · 一个权重，三个层级
#
# With $d_t = \log p_\text{train} - \log p_\text{rollout}$ of a token, T real
# tokens:
#
# $$\text{token: } e^{d_t} \qquad \text{product: } e^{\sum_t d_t} \qquad
# \text{geometric: } e^{\frac{1}{T} \sum_t d_t}.$$
#
# Product and geometric mean are one number for a response: give it to each of
# its real tokens. All three are 1 in the padding. A product too small for
# float32 is 0. Were you right about the two responses?
#
# 8 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "weight_levels", "locked": false, "schema_version": 3, "solution": true, "task": false}
def weight_levels(
    logp_train: Tensor, logp_rollout: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Weights of each token: its own, the product, the geometric mean.

    logp_train, logp_rollout, mask [B, T]  ->  three times [B, T], no gradient
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab09-weight_levels
    d = torch.where(mask, logp_train - logp_rollout, 0.0).detach()
    total = d.sum(1, keepdim=True)
    mean = total / mask.sum(1, keepdim=True)
    product, geometric = (
        torch.where(mask, x, 0.0).exp() for x in (total, mean)
    )
    return d.exp(), product, geometric
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "weight_levels_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("weight_levels", weight_levels)

# %% nbgrader={"grade": true, "grade_id": "weight_levels_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("weight_levels", weight_levels, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab09-weight_levels-hidden
from tinyrl.course import check as _check

_check("weight_levels", weight_levels, seed=9127)
### END HIDDEN TESTS

# %% [markdown]
# ## 2. Truncate or mask · 截断还是屏蔽
#
# Two operations on token weights. **Truncate**: the weight is $\min(\rho, C)$,
# with `upper` for C and no lower bound. **Mask**: outside of `lower` to `upper`
# the token is dropped, its weight 0; inside it keeps its $\rho$. A weight
# exactly on a bound is inside. Return both weights, 0 in the padding, and which
# tokens the mask keeps.
#
# 7 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "bounded_weights", "locked": false, "schema_version": 3, "solution": true, "task": false}
def bounded_weights(
    rho: Tensor, mask: Tensor, lower: float, upper: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Truncated weights, masked weights, and the tokens that the mask keeps.

    rho, mask [B, T], 0 < lower < upper
    ->  [B, T], [B, T], boolean [B, T], no gradient
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab09-bounded_weights
    rho = rho.detach()
    kept = mask & (rho >= lower) & (rho <= upper)
    truncated = torch.where(mask, rho.clamp(max=upper), 0.0)
    return truncated, torch.where(kept, rho, 0.0), kept
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "bounded_weights_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("bounded_weights", bounded_weights)

# %% nbgrader={"grade": true, "grade_id": "bounded_weights_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("bounded_weights", bounded_weights, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab09-bounded_weights-hidden
from tinyrl.course import check as _check

_check("bounded_weights", bounded_weights, seed=9174)
### END HIDDEN TESTS

# %% [markdown]
# ## 3. Effective sample size · 有效样本量
#
# How much of a batch carries the weights (Kish 1965), as a share of its n real
# tokens:
#
# $$\mathrm{ESS} = \frac{(\sum w)^2}{n \sum w^2}.$$
#
# Equal weights give 1. A token that was dropped has weight 0 and still counts
# in n. If every weight is 0, ESS is 0. All weights can be as large as e^50, or
# as small as e^-50.
#
# 6 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "weight_ess", "locked": false, "schema_version": 3, "solution": true, "task": false}
def weight_ess(weight: Tensor, mask: Tensor) -> Tensor:
    """Effective sample size of the weights of real tokens, as a share.

    weight (0 or more), mask [B, T]  ->  scalar [] from 0 to 1
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab09-weight_ess
    w = torch.where(mask, weight, 0.0)
    if not w.any():
        return torch.zeros(())
    w = w / w.max()
    return w.sum() ** 2 / (mask.sum() * w.square().sum())
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "weight_ess_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("weight_ess", weight_ess)

# %% nbgrader={"grade": true, "grade_id": "weight_ess_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("weight_ess", weight_ess, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab09-weight_ess-hidden
from tinyrl.course import check as _check

_check("weight_ess", weight_ess, seed=9221)
### END HIDDEN TESTS

# %% [markdown]
# ## 4. Weights of mean 1 · 均值为 1 的权重
#
# Self-normalised weights (`batch_normalize` in verl) keep the size of a step:
# divide by the mean over the tokens that are `kept`, so that *their* mean is 1.
# What is not kept gets 0. A kept token can have weight 0. If nothing is kept,
# or all kept weights are 0, return zeros. All weights can be as small as e^-20.
#
# 5 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "normalised_weights", "locked": false, "schema_version": 3, "solution": true, "task": false}
def normalised_weights(weight: Tensor, kept: Tensor) -> Tensor:
    """Weights divided by their mean over the kept tokens; 0 elsewhere.

    weight, kept [B, T]  ->  [B, T], no gradient
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab09-normalised_weights
    w = torch.where(kept, weight.detach(), 0.0)
    mean = w.sum() / kept.sum()  # NaN, if nothing is kept, is not above 0
    return torch.where(mean > 0, w / mean, 0.0)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "normalised_weights_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("normalised_weights", normalised_weights)

# %% nbgrader={"grade": true, "grade_id": "normalised_weights_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("normalised_weights", normalised_weights, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab09-normalised_weights-hidden
from tinyrl.course import check as _check

_check("normalised_weights", normalised_weights, seed=9268)
### END HIDDEN TESTS

# %% [markdown]
# ## 5. A band and a veto · 区间与一票否决
#
# Rejection of whole responses. A response stays if the **geometric mean** of
# its ratios is from `lower` to `upper`, and if **no** real token has a ratio
# below `veto` (1e-4 in slime). Return which tokens stay: all real ones of a
# response, or none. Nothing lies nearer to a bound than 5e-5 in the logarithm.
#
# 9 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "kept_responses", "locked": false, "schema_version": 3, "solution": true, "task": false}
def kept_responses(
    logp_train: Tensor,
    logp_rollout: Tensor,
    mask: Tensor,
    lower: float,
    upper: float,
    veto: float,
) -> Tensor:
    """Tokens of responses whose geometric mean is in the band and without veto.

    logp_train, logp_rollout, mask [B, T], 0 < lower < 1 < upper, 0 < veto < 1
    ->  boolean [B, T]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab09-kept_responses
    d = torch.where(mask, logp_train - logp_rollout, 0.0)
    mean = d.sum(1, keepdim=True) / mask.sum(1, keepdim=True)
    near = (mean >= math.log(lower)) & (mean <= math.log(upper))
    return mask & near & ~(d < math.log(veto)).any(1, keepdim=True)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "kept_responses_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("kept_responses", kept_responses)

# %% nbgrader={"grade": true, "grade_id": "kept_responses_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("kept_responses", kept_responses, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab09-kept_responses-hidden
from tinyrl.course import check as _check

_check("kept_responses", kept_responses, seed=9315)
### END HIDDEN TESTS

# %% [markdown]
# ## 6. Exact bias and variance · 精确的偏差与方差
#
# You are given *every* response of a small world, N of T tokens without
# padding, and a `value` for each. With $\mu(y)$ and $\pi(y)$ the probabilities
# of whole responses under rollout and trainer, the estimate from one sampled
# response is $x(y) = \min(\pi(y) / \mu(y), C)\, v(y)$. Its bias and variance
# are sums:
#
# $$\sum_y \mu(y)\, x(y) - \sum_y \pi(y)\, v(y), \qquad
# \sum_y \mu(y)\, \Big(x(y) - \sum_{y'} \mu(y')\, x(y')\Big)^2.$$
#
# Responses can be as unlikely as e^-120.
#
# 10 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "exact_bias", "locked": false, "schema_version": 3, "solution": true, "task": false}
def exact_bias(
    logp_train: Tensor, logp_rollout: Tensor, value: Tensor, cap: float
) -> tuple[Tensor, Tensor]:
    """Bias and variance of one truncated product estimate of E_pi[value].

    logp_train, logp_rollout [N, T], value [N], cap > 0  ->  [], []
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab09-exact_bias
    log_pi, log_mu = logp_train.sum(1), logp_rollout.sum(1)
    mu, pi = log_mu.exp(), log_pi.exp()
    x = (log_pi - log_mu).exp().clamp(max=cap) * value
    mean = (mu * x).sum()
    return mean - (pi * value).sum(), (mu * (x - mean) ** 2).sum()
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "exact_bias_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("exact_bias", exact_bias)

# %% nbgrader={"grade": true, "grade_id": "exact_bias_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("exact_bias", exact_bias, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab09-exact_bias-hidden
from tinyrl.course import check as _check

_check("exact_bias", exact_bias, seed=9362)
### END HIDDEN TESTS

# %% [markdown]
# ## 7. Three policies in one loss · 一个损失里的三个策略
#
# Decoupled PPO (arXiv 2110.00641): with $r_t = p_\text{new} / p_\text{old}$ and
# $\rho_t = p_\text{old} / p_\text{rollout}$,
#
# $$L = \frac{1}{\sum m} \sum_{b,t} m\, \min(\rho_t, C)\,
# \max\big(-A r_t,\ -A\, \mathrm{clip}(r_t, 1 - \epsilon, 1 + \epsilon)\big).$$
#
# The weight stands outside the clip and gets no gradient; only `logp_new` does.
# A is one number a response; the mean is over the real tokens of the batch,
# which has some. A loss that overflows is to be seen: drop none but by the mask.
#
# 11 minutes, 4 points.

# %% nbgrader={"grade": false, "grade_id": "decoupled_loss", "locked": false, "schema_version": 3, "solution": true, "task": false}
def decoupled_loss(
    logp_new: Tensor,
    logp_old: Tensor,
    logp_rollout: Tensor,
    advantages: Tensor,
    mask: Tensor,
    eps: float,
    cap: float,
) -> Tensor:
    """The loss to minimise: truncated weight times PPO's clipped loss.

    logp_new, logp_old, logp_rollout, mask [B, T], advantages [B]  ->  []
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab09-decoupled_loss
    new, old, roll = (
        x[mask] for x in (logp_new, logp_old.detach(), logp_rollout.detach())
    )
    r, weight = (new - old).exp(), (old - roll).exp().clamp(max=cap)
    A = advantages.repeat_interleave(mask.sum(1))
    loss = (-A * r).maximum(-A * r.clamp(1 - eps, 1 + eps))
    return (weight * loss).mean()
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "decoupled_loss_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("decoupled_loss", decoupled_loss)

# %% nbgrader={"grade": true, "grade_id": "decoupled_loss_hidden", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# 3 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("decoupled_loss", decoupled_loss, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab09-decoupled_loss-hidden
from tinyrl.course import check as _check

_check("decoupled_loss", decoupled_loss, seed=9409)
### END HIDDEN TESTS

# %% [markdown]
# ## 8. Bad responses left behind · 被甩在后面的坏回答
#
# Off-policy sequence masking (DeepSeek-V3.2, arXiv 2512.02556 §3.1): a response
# is dropped if its advantage is below 0 **and** the mean of $\log
# p_\text{rollout} - \log p_\text{new}$ over its real tokens is above `delta`.
# Good responses always stay, and bad ones that the policy still finds likely.
# Above is above: where the mean is exactly `delta`, the response stays.
#
# 7 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "stale_negatives", "locked": false, "schema_version": 3, "solution": true, "task": false}
def stale_negatives(
    logp_new: Tensor,
    logp_rollout: Tensor,
    advantages: Tensor,
    mask: Tensor,
    delta: float,
) -> Tensor:
    """The tokens that stay: real ones, not of bad responses left behind.

    logp_new, logp_rollout, mask [B, T], advantages [B]  ->  boolean [B, T]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab09-stale_negatives
    d = torch.where(mask, logp_rollout - logp_new, 0.0)
    mean = d.sum(1, keepdim=True) / mask.sum(1, keepdim=True)
    return mask & ~((advantages < 0)[:, None] & (mean > delta))
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "stale_negatives_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("stale_negatives", stale_negatives)

# %% nbgrader={"grade": true, "grade_id": "stale_negatives_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("stale_negatives", stale_negatives, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab09-stale_negatives-hidden
from tinyrl.course import check as _check

_check("stale_negatives", stale_negatives, seed=9456)
### END HIDDEN TESTS

# %% [markdown]
# ## 9. Open question: a band that protects
#
# 10 minutes, 4 points, read by a person. If you study alone: write yours, then
# `solution("lab09")` shows an answer, and what a marker looks for.

# %% [markdown] nbgrader={"grade": false, "grade_id": "open_rubric", "locked": true, "points": 0, "schema_version": 3, "solution": false, "task": true}
# A team has read that sequences outside of [0.999, 1.001] must be masked, by
# the geometric mean of their ratios. Their rollouts are INT8, responses have
# about 6,000 tokens, old logprobs are recomputed, and each update takes a
# minibatch of 64 responses. A response's mean delta is -0.003 a token on
# average, with a standard deviation of 0.001 over responses. Their logs: K3
# 0.003, no NaN, clip fraction 0, reward unchanged for 300 steps, then slowly
# falling. "The mask protects us from the mismatch, so the learning rate must be
# wrong," they say.
#
# In at most 200 words: which two numbers do you ask for, and what will they be?
# Show with mean and deviation that the band can keep next to nothing. Why may
# the reward fall, and not only stand still? What should they do instead, and
# which control would show that you are right?
#
# One point for each of the four questions.
#
# === BEGIN MARK SCHEME ===
# canary: TINYRL-CANARY-lab09-open-scheme
#
# 1. The kept share (of tokens or responses), and kept responses an update: 2 %,
#    and one or two of 64. (Clip fraction and K3 say nothing of what is kept.
#    Half a point for one number.)
# 2. The band allows a mean log ratio from log 0.999 = -0.0010 to log 1.001 =
#    +0.0010. Theirs is -0.003, and its near edge is two deviations away: 2 %
#    of a bell curve. (Not asked for: longer responses pass even less often, for
#    a mean's scatter shrinks with length, towards -0.003 and not 0.)
# 3. Any sound reason that claims no proof: few responses are a noisy gradient,
#    which Adam (and a mean over kept tokens) scales to a step of full size; kept
#    ones may be alone in their groups, whose advantages then do not sum to
#    zero; momentum goes on when nothing is kept.
# 4. Take the band off, widen it (0.99 to 1.01 has the mean well inside), or
#    truncate token weights; products are hopeless (0.003 * 6,000 = 18 nats a
#    response). Better, lessen the mismatch. That delta's mean is negative is no
#    sign of a bug: of mu's own tokens it is -KL, and K3 says the same 0.003.
#    Control: as few responses, kept at random, of rollouts without mismatch
#    should stand still or fall just so; or this band against a wide one, all
#    else equal. On several seeds.
# === END MARK SCHEME ===

# %% [markdown] nbgrader={"grade": true, "grade_id": "open_answer", "locked": false, "points": 4, "schema_version": 3, "solution": true, "task": false}
# ### BEGIN SOLUTION
# canary: TINYRL-CANARY-lab09-open-answer
#
# I ask for the share of responses that the mask keeps and for kept responses an
# update; I expect 2 %, and one or two of 64. The band is log 0.999 = -0.0010 to
# log 1.001 = +0.0010 for the mean delta. Theirs is -0.003, two deviations
# below, so 2 % come in. A response now and then comes through: its noise is the
# whole gradient, and Adam makes it a step of full size. That may be a random
# walk, and reward can fall. They should drop the band or widen it to 0.99 to
# 1.01, or truncate token weights; and work on the mismatch. Control: fresh
# rollouts of the trainer's own engine, of which as few responses are kept by
# lot, on several seeds. If those runs fall as well, it is the number of
# responses, not the mismatch.
# ### END SOLUTION

# %% [markdown]
# You are done. `progress()` shows what is left; notebook 09 shows the same
# weights on a model that is trained with them.
