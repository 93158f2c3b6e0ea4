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
# # Lab 10: measuring and monitoring
#
# A dashboard shows numbers of a batch. Each sees some faults and is blind to
# others, and each is an estimate. In this lab you write those that a mean
# leaves out: a percentile, two causes apart, weights and what they are worth,
# reward against ratio, what was dropped, which tokens left the top k, an
# interval on a number, and an alarm that a spike does not ring and NaN does.
# 72 minutes, 27 points, eight exercises of 4 to 9 lines and one open
# question.
#
# **How it works.** Write your code over `raise NotImplementedError()`, run the
# cell, then run the locked test cell under it: it checks your function at once
# and names the mistake. A second locked cell runs it on inputs you do not see.
# `hint("two_causes")` gives the next of three hints, `solution("two_causes")`
# one right answer once you have had a try checked, `progress()` how far you are.
# If a test says `NameError`, run the cell above it first. After a `SyntaxError`
# it still judges your last version that ran.
# `set_language("zh")` 之后，检查结果和提示都用中文显示。
#
# **The arrays.** B responses of T columns, padded on the right. `logp_* [B, T]`
# are logprobs of the sampled tokens, delta is `logp_train - logp_rollout`.
# `mask [B, T]` is true on real tokens, and every row has some. **Padding holds
# garbage**: NaN, inf or numbers that mean nothing. A real token can have a delta
# of exactly 0. Do not write into your arguments.

# %% nbgrader={"grade": false, "grade_id": "setup", "locked": true, "schema_version": 3, "solution": false, "task": false}
import torch
from torch import Tensor

from tinyrl.course import check, hint, progress, set_language, solution

# %% [markdown]
# Two short responses, to try your functions on. Guess before you go on: is the
# mean of |delta| nearer to its median or to its largest value?

# %% nbgrader={"grade": false, "grade_id": "by_hand", "locked": true, "schema_version": 3, "solution": false, "task": false}
by_hand_train = torch.tensor([[-0.5, -1.0, -2.0], [-0.25, -3.0, 0.0]])
by_hand_rollout = torch.tensor([[-0.6, -1.2, -1.5], [-0.5, -2.0, 0.0]])
by_hand_mask = torch.tensor([[True, True, True], [True, True, False]])

# %% [markdown]
# ## 1. A percentile of |delta| · |delta| 的分位数
#
# A mean hides how its tokens are spread: a small delta everywhere and a large
# one on every hundredth token can have the same. Return the q-quantile of
# $|\delta|$ over all real tokens together. The smallest stands at place 0 and
# the largest at N - 1; the quantile stands at $q (N - 1)$, and between two
# tokens it lies on the straight line, as in `numpy` and `torch`.
#
# 5 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "delta_quantile", "locked": false, "schema_version": 3, "solution": true, "task": false}
def delta_quantile(
    logp_train: Tensor, logp_rollout: Tensor, mask: Tensor, q: float
) -> Tensor:
    """The q-quantile of |logp_train - logp_rollout| over real tokens.

    all [B, T], 0 < q < 1  ->  scalar []
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab10-delta_quantile
    x = (logp_train - logp_rollout)[mask].abs().sort().values
    place = q * (len(x) - 1)
    low = int(place)
    pair = x[low : low + 2]  # the largest has no neighbour
    return pair[0] + (place - low) * (pair[-1] - pair[0])
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "delta_quantile_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("delta_quantile", delta_quantile)

# %% nbgrader={"grade": true, "grade_id": "delta_quantile_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("delta_quantile", delta_quantile, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab10-delta_quantile-hidden
from tinyrl.course import check as _check

_check("delta_quantile", delta_quantile, seed=6103)
### END HIDDEN TESTS

# %% [markdown]
# ## 2. Mismatch and staleness apart · 把不一致与滞后分开
#
# A dashboard that compares the newest policy with the rollout sees two things
# at once: two engines, and the updates since. With $p_{old}$, the trainer's
# probability under the weights that the rollout had, they come apart,
#
# $$\frac{p_{new}}{p_{rollout}} = \frac{p_{old}}{p_{rollout}} \cdot
# \frac{p_{new}}{p_{old}}.$$
#
# Return K3, the mean over real tokens of $e^d - 1 - d$ with $d$ the log of a
# ratio, of the **mismatch** (old / rollout), the **staleness** (new / old) and
# of **both** (new / rollout). Engines may differ by 1e-4 and less: keep K3
# right there. Guess first: is the third the sum of the others?
#
# 7 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "two_causes", "locked": false, "schema_version": 3, "solution": true, "task": false}
def two_causes(
    logp_new: Tensor, logp_old: Tensor, logp_rollout: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """K3 of old / rollout, of new / old and of new / rollout.

    all [B, T]  ->  mismatch, staleness, both: scalars []
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab10-two_causes
    new, old, rollout = logp_new[mask], logp_old[mask], logp_rollout[mask]

    def k3(d: Tensor) -> Tensor:
        return (torch.expm1(d) - d).mean()

    return k3(old - rollout), k3(new - old), k3(new - rollout)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "two_causes_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("two_causes", two_causes)

# %% nbgrader={"grade": true, "grade_id": "two_causes_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("two_causes", two_causes, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab10-two_causes-hidden
from tinyrl.course import check as _check

_check("two_causes", two_causes, seed=6162)
### END HIDDEN TESTS

# %% [markdown]
# ## 3. Effective sample size and chi2 · 有效样本量与 chi2
#
# The weight of a response is the product of its ratios, $w = e^\Delta$ with
# $\Delta = \sum_t \delta_t$. Return two numbers of the N weights of a batch: the
# **effective sample size** as a share of N, and the sample's **chi2**,
#
# $$\text{ess} = \frac{(\frac1N \sum w)^2}{\frac1N \sum w^2}, \qquad
# \chi^2 = \frac1N \sum w^2 - 1.$$
#
# If all weights are equal, ess is 1, whatever they are: also where $e^\Delta$
# is 0 to a computer. What both are worth is said in lesson 10.
#
# 8 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "ess_and_chi2", "locked": false, "schema_version": 3, "solution": true, "task": false}
def ess_and_chi2(
    logp_train: Tensor, logp_rollout: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Effective sample size (a share) and chi2 of the responses' weights.

    all [B, T]  ->  ess in (0, 1], chi2: scalars []
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab10-ess_and_chi2
    Delta = torch.where(mask, logp_train - logp_rollout, 0.0).sum(1)
    w = (Delta - Delta.max()).exp()  # only their proportions matter to ess
    ess = w.mean() ** 2 / (w * w).mean()
    return ess, (2 * Delta).exp().mean() - 1
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "ess_and_chi2_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("ess_and_chi2", ess_and_chi2)

# %% nbgrader={"grade": true, "grade_id": "ess_and_chi2_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("ess_and_chi2", ess_and_chi2, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab10-ess_and_chi2-hidden
from tinyrl.course import check as _check

_check("ess_and_chi2", ess_and_chi2, seed=6221)
### END HIDDEN TESTS

# %% [markdown]
# ## 4. Reward against ratio · 奖励与比值的相关
#
# The reward in the log is that of the policy that **sampled**. If the trainer
# rates good responses otherwise than the engine did, its own reward is another.
# Return Pearson's correlation of $\Delta$ (one number a response) with the
# rewards. Where either does not vary there is none: return 0. (The mean of
# equal numbers can differ from them in the last bit.) Rewards may lie far
# from 0.
#
# 8 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "reward_correlation", "locked": false, "schema_version": 3, "solution": true, "task": false}
def reward_correlation(
    logp_train: Tensor, logp_rollout: Tensor, rewards: Tensor, mask: Tensor
) -> Tensor:
    """Correlation of a response's summed delta with its reward.

    logp_*, mask [B, T], rewards [B]  ->  scalar [] in -1 to 1
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab10-reward_correlation
    x = torch.where(mask, logp_train - logp_rollout, 0.0).sum(1)
    if x.max() == x.min() or rewards.max() == rewards.min():
        return torch.zeros(())  # what x - x.mean() leaves of them is rounding
    x, y = x - x.mean(), rewards - rewards.mean()
    return (x * y).sum() / ((x * x).sum().sqrt() * (y * y).sum().sqrt())
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "reward_correlation_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("reward_correlation", reward_correlation)

# %% nbgrader={"grade": true, "grade_id": "reward_correlation_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("reward_correlation", reward_correlation, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab10-reward_correlation-hidden
from tinyrl.course import check as _check

_check("reward_correlation", reward_correlation, seed=6280)
### END HIDDEN TESTS

# %% [markdown]
# ## 5. What a correction dropped · 修正丢弃了多少
#
# A correction that masks hands the loss a weight of exactly 0. "Dropped 3 %"
# can mean three things. Return the share of real **tokens** that were dropped,
# the share of responses that lost **some** token, and the share of responses of
# which the **whole** is gone (they are among the second, too). A kept weight can
# be very small.
#
# 6 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "dropped_shares", "locked": false, "schema_version": 3, "solution": true, "task": false}
def dropped_shares(
    weight: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Shares of dropped tokens, of touched and of lost responses.

    weight, mask [B, T]  ->  tokens, some, whole: scalars []
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab10-dropped_shares
    out = (weight == 0) & mask
    lost, tokens = out.sum(1), mask.sum(1)
    some, whole = (lost > 0).float(), (lost == tokens).float()
    return lost.sum() / tokens.sum(), some.mean(), whole.mean()
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "dropped_shares_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("dropped_shares", dropped_shares)

# %% nbgrader={"grade": true, "grade_id": "dropped_shares_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("dropped_shares", dropped_shares, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab10-dropped_shares-hidden
from tinyrl.course import check as _check

_check("dropped_shares", dropped_shares, seed=6339)
### END HIDDEN TESTS

# %% [markdown]
# ## 6. Drift of the top k · top-k 的漂移
#
# Engines return the k likeliest tokens of a place, with logprobs of the whole
# vocabulary, in any order. Return two means over real tokens: the **overlap**,
# the share of the k that both sides list, and what **left**: the rollout's
# probability of tokens that it lists and the trainer does not. What left may
# be 1e-9: add it up itself.
#
# 9 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "top_k_drift", "locked": false, "schema_version": 3, "solution": true, "task": false}
def top_k_drift(
    ids_rollout: Tensor,
    logp_rollout: Tensor,
    ids_train: Tensor,
    logp_train: Tensor,
    mask: Tensor,
) -> tuple[Tensor, Tensor]:
    """Overlap of the k likeliest tokens, and the mass that left the set.

    ids_*, logp_* [B, T, k], mask [B, T]  ->  overlap, left: scalars []
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab10-top_k_drift
    a, b = ids_rollout[mask], ids_train[mask]
    stays = (a[:, :, None] == b[:, None, :]).any(2)
    p = logp_rollout[mask].exp()
    return stays.to(p).mean(), torch.where(stays, 0.0, p).sum(1).mean()
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "top_k_drift_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("top_k_drift", top_k_drift)

# %% nbgrader={"grade": true, "grade_id": "top_k_drift_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("top_k_drift", top_k_drift, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab10-top_k_drift-hidden
from tinyrl.course import check as _check

_check("top_k_drift", top_k_drift, seed=6398)
### END HIDDEN TESTS

# %% [markdown]
# ## 7. An interval by resampling responses · 重抽回答得到区间
#
# How sure is mean $|\delta|$? Draw B responses of the batch with replacement,
# compute it again, many times, and see how it spreads (Efron 1979). Draw
# **responses**: the tokens of one share a prompt and a prefix. `draws [R, B]`
# are the row numbers that a generator drew. Return the ends of the interval that
# holds the middle `level` of the R numbers, by quantiles as in exercise 1. Each
# number is a mean over the real **tokens** of its resample.
#
# 10 minutes, 4 points.

# %% nbgrader={"grade": false, "grade_id": "bootstrap_interval", "locked": false, "schema_version": 3, "solution": true, "task": false}
def bootstrap_interval(
    logp_train: Tensor,
    logp_rollout: Tensor,
    mask: Tensor,
    draws: Tensor,
    level: float,
) -> tuple[Tensor, Tensor]:
    """Percentile interval of mean |delta|, by responses drawn again.

    logp_*, mask [B, T], draws [R, B] in 0..B-1, 0 < level < 1
    ->  low, high: scalars []
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab10-bootstrap_interval
    size = torch.where(mask, logp_train - logp_rollout, 0.0).abs().sum(1)
    tokens = mask.sum(1)
    means = size[draws].sum(1) / tokens[draws].sum(1)
    tail = (1 - level) / 2
    return torch.quantile(means, tail), torch.quantile(means, 1 - tail)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "bootstrap_interval_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("bootstrap_interval", bootstrap_interval)

# %% nbgrader={"grade": true, "grade_id": "bootstrap_interval_hidden", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# 3 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("bootstrap_interval", bootstrap_interval, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab10-bootstrap_interval-hidden
from tinyrl.course import check as _check

_check("bootstrap_interval", bootstrap_interval, seed=6457)
### END HIDDEN TESTS

# %% [markdown]
# ## 8. An alarm over steps · 跨步的警报
#
# One step above a bound is often chance, and a value that sways about it rings
# on and off. So: the alarm turns **on** at the step at which `patience` values in
# a row lie above `high`; it turns **off** at the first value below `low`, and
# stays as it is otherwise. **NaN is worse than any number**: it counts as above
# `high`, never as below `low`. `low` is not above `high`. Return its state at
# each step, known at that step.
#
# 9 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "alarm_on", "locked": false, "schema_version": 3, "solution": true, "task": false}
def alarm_on(
    values: Tensor, high: float, low: float, patience: int
) -> Tensor:
    """Whether the alarm is on, at each step.

    values [S], low <= high, patience >= 1  ->  boolean [S]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab10-alarm_on
    on, run, states = False, 0, []
    for value in values:
        run = 0 if value <= high else run + 1  # NaN <= high is false
        if on and value < low:
            on = False
        elif run >= patience:
            on = True
        states.append(on)
    return torch.tensor(states)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "alarm_on_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("alarm_on", alarm_on)

# %% nbgrader={"grade": true, "grade_id": "alarm_on_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("alarm_on", alarm_on, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab10-alarm_on-hidden
from tinyrl.course import check as _check

_check("alarm_on", alarm_on, seed=6516)
### END HIDDEN TESTS

# %% [markdown]
# ## 9. Open question: clean curves, and it fails when served
#
# 10 minutes, 4 points, read by a person. If you study alone: write yours, then
# `solution("lab10")` shows an answer, and what a marker looks for.

# %% [markdown] nbgrader={"grade": false, "grade_id": "open_rubric", "locked": true, "points": 0, "schema_version": 3, "solution": false, "task": true}
# A team's training curves are clean: the reward rises to 0.9, K3 stays at 2e-4,
# the clip fraction is below 1 %, no alarm rings. The model is deployed, on
# another engine than the rollouts'. There it succeeds in 70 % of requests, 20
# points fewer. 400 requests were counted.
#
# In at most 200 words: is the gap chance (give a number)? Which **three
# measurements** do you make, in which order, and what does each outcome mean?
# Say of each what it holds fixed. Why could all of the training numbers stay
# clean, and which one measurement, made every hundred steps, would have shown
# the fault before deployment?
#
# One point for chance, one for three measurements that separate causes, one for
# their order and outcomes, one for the last two questions.
#
# === BEGIN MARK SCHEME ===
# canary: TINYRL-CANARY-lab10-open-scheme
#
# 1. The standard error of 0.7 over 400 is sqrt(0.7 * 0.3 / 400) = 0.023: 20
#    points are nearly 9 of them. No chance. (An interval, 0.66 to 0.74, counts.)
# 2. For example: (a) the same checkpoint and prompts through the *training*
#    rollout stack, as an evaluation; (b) through the served stack; (c) the same
#    ids scored by both: delta, after ids were compared. Any three that separate
#    prompts, weights and stack (a weight digest, ids of both sides, success with
#    one field of the stack swapped) count.
# 3. (a) first: if it gives 0.7, the stack is not the cause, but the prompts or
#    the reward in training. If 0.9: (b) on the same prompts; 0.9 there means the
#    requests differ (template, distribution), 0.7 the stack or the weights. Then
#    (c): ids differ: template or tokenizer; ids equal and delta large: weights,
#    format or sampler; delta small: a sampling parameter that raw logprobs hide.
# 4. All training numbers compare trainer and rollout on rollouts' tokens: what
#    serves never occurs in them. Pass rate, length and format through the real
#    serving stack, on fixed prompts, with an interval.
# === END MARK SCHEME ===

# %% [markdown] nbgrader={"grade": true, "grade_id": "open_answer", "locked": false, "points": 4, "schema_version": 3, "solution": true, "task": false}
# ### BEGIN SOLUTION
# canary: TINYRL-CANARY-lab10-open-answer
#
# The standard error is sqrt(0.7 * 0.3 / 400) = 0.023, so 20 points are nearly 9
# of them: not chance. First I evaluate the deployed checkpoint on fixed prompts
# under the rollouts' stack; weights and prompts fixed, the stack is that of
# training. If it gives 0.7 the training reward was another thing: its prompts,
# or its checker. If it gives 0.9, I send the same prompts to the served stack.
# 0.9 there says that the users' requests differ: their template, or their
# distribution. 0.7 says that the stack or its weights do. Then I take the served
# responses and score the same ids in the trainer, comparing ids first. Other
# ids: template or tokenizer. Equal ids and a large delta: weights that did not
# arrive, a format, a temperature; I swap one at a time. A small delta: what
# logprobs do not show, a top-p with raw logprobs, or a limit on the length. The
# curves stayed clean because every number in them compares trainer and rollout
# on the rollouts' tokens. The serving stack is in none. Its pass rate, length
# and format on fixed prompts, with an interval, every hundred steps, would have
# shown it.
# ### END SOLUTION

# %% [markdown]
# You are done. `progress()` shows what is left; notebook 10 shows the same
# numbers on faults that were injected.
