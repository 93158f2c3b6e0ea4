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
# # Lab 08: objectives
#
# PPO, GRPO, GSPO, DAPO, SAPO and CISPO differ in a handful of lines: the level
# of the ratio, what is done to one that has gone far, how tokens are averaged,
# and what a reward is compared with. Each line trusts the old logprob. In this
# lab you write these lines, and the two numbers that show whom a clip stops.
# 70 minutes, 29 points, eight exercises of 2 to 6 lines and one open question.
#
# **How it works.** Write your code over `raise NotImplementedError()`, run the
# cell, then run the locked test cell under it: it checks your function at once
# and names the mistake. A second locked cell runs it on inputs you do not see.
# `hint("ppo_loss")` gives the next of three hints, `solution("ppo_loss")` one
# right answer once you have had a try checked, `progress()` how far you are.
# If a test says `NameError`, run the cell above it first. After a `SyntaxError`
# it still judges your last version that ran.
# `set_language("zh")` 之后，检查结果和提示都用中文显示。
#
# **The arrays.** B responses of T columns, padded on the right: `logp [B, T]`,
# of the policy that is being trained, with a gradient; `logp_old [B, T]`, which
# is **data** and must get none; `advantages [B]`, one for all tokens of a
# response; `mask [B, T]`, true on real tokens, some in every row. The ratio r
# of a token is exp(logp - logp_old). **Padding holds garbage**, also NaN, and
# its gradient must be finite. Losses are to be minimised. Do not write into
# your arguments.

# %% nbgrader={"grade": false, "grade_id": "setup", "locked": true, "schema_version": 3, "solution": false, "task": false}
import torch
from torch import Tensor

from tinyrl.course import check, hint, progress, set_language, solution

# %% [markdown]
# Two responses with advantages 1 and -1, and the ratios of their tokens, to try
# your functions on. Guess before you go on: a band of 0.8 to 1.3 stops two of
# these tokens. Which?

# %% nbgrader={"grade": false, "grade_id": "by_hand", "locked": true, "schema_version": 3, "solution": false, "task": false}
by_hand_old = torch.tensor([[-1.0, -1.0, -2.0], [-1.5, -3.0, 0.0]])
by_hand_delta = torch.tensor([[0.5, -0.5, 0.1], [0.5, -0.5, 0.0]])
by_hand_mask = torch.tensor([[True, True, True], [True, True, False]])
by_hand_advantages = torch.tensor([1.0, -1.0])

# %% [markdown]
# ## 1. PPO's clipped loss · PPO 的裁剪损失
#
# PPO (arXiv 1707.06347 eq. 7) takes, of a plain and of a clipped term, the
# worse:
#
# $$\ell = \max\big(-r A,\; -\operatorname{clip}(r, 1 - \epsilon_\text{low},
# 1 + \epsilon_\text{high})\, A\big).$$
#
# Where A < 0 this still grows with r without end, so **dual clip** (arXiv
# 1912.09729) bounds it there, and there alone, by $-c A$ with c = `dual`.
# Return the loss of each token, 0 in the padding.
#
# 10 minutes, 4 points.

# %% nbgrader={"grade": false, "grade_id": "ppo_loss", "locked": false, "schema_version": 3, "solution": true, "task": false}
def ppo_loss(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    eps_low: float,
    eps_high: float,
    dual: float,
) -> Tensor:
    """PPO's clipped loss of each token, with dual clip where A < 0.

    logp, logp_old, mask [B, T], advantages [B], dual > 1  ->  [B, T]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab08-ppo_loss
    r = torch.where(mask, logp - logp_old.detach(), 0.0).exp()
    A = advantages[:, None]
    loss = (-r * A).maximum(-r.clamp(1 - eps_low, 1 + eps_high) * A)
    loss = torch.where(A < 0, loss.minimum(-dual * A), loss)
    return torch.where(mask, loss, 0.0)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "ppo_loss_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("ppo_loss", ppo_loss)

# %% nbgrader={"grade": true, "grade_id": "ppo_loss_hidden", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# 3 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("ppo_loss", ppo_loss, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab08-ppo_loss-hidden
from tinyrl.course import check as _check

_check("ppo_loss", ppo_loss, seed=8117)
### END HIDDEN TESTS

# %% [markdown]
# ## 2. Whom the clip stops · 谁被裁剪了
#
# A clip fraction says how many tokens got no gradient. *Which* they were says
# more: of the tokens of **good** responses (A > 0), the share whose ratio is
# above 1 + eps_high; of those of **bad** ones (A < 0), the share below 1 -
# eps_low. Each is a share of its own kind; a response with A = 0 belongs to
# neither. Return both, good first, and 0 where there are none of a kind. Were
# you right about the two tokens?
#
# 7 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "stopped_shares", "locked": false, "schema_version": 3, "solution": true, "task": false}
def stopped_shares(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    eps_low: float,
    eps_high: float,
) -> tuple[Tensor, Tensor]:
    """Shares of good and of bad responses' tokens that PPO's clip stops.

    logp, logp_old, mask [B, T], advantages [B]  ->  two scalars []
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab08-stopped_shares
    r = torch.where(mask, logp - logp_old, 0.0).exp()
    good = (advantages[:, None] > 0) & mask
    bad = (advantages[:, None] < 0) & mask
    of_good = ((r > 1 + eps_high) & good).sum() / good.sum().clamp(min=1)
    of_bad = ((r < 1 - eps_low) & bad).sum() / bad.sum().clamp(min=1)
    return of_good, of_bad
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "stopped_shares_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("stopped_shares", stopped_shares)

# %% nbgrader={"grade": true, "grade_id": "stopped_shares_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("stopped_shares", stopped_shares, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab08-stopped_shares-hidden
from tinyrl.course import check as _check

_check("stopped_shares", stopped_shares, seed=8164)
### END HIDDEN TESTS

# %% [markdown]
# ## 3. GSPO's ratio, token form · GSPO 的比值（token 形式）
#
# GSPO (arXiv 2507.18071) gives all tokens of a response one ratio, the
# geometric mean of theirs,
#
# $$s = \exp\Big(\frac{1}{|y|} \sum_t \log r_t\Big).$$
#
# Its **token form** (§4.3), which takes an advantage for each token, has the
# value of s and the gradient of each token's own logprob alone: $s_t =
# \operatorname{sg}[s] \; \pi(y_t) / \operatorname{sg}[\pi(y_t)]$, with sg for
# `detach`. Return $s_t$, and 1 in the padding.
#
# 9 minutes, 4 points.

# %% nbgrader={"grade": false, "grade_id": "gspo_ratio", "locked": false, "schema_version": 3, "solution": true, "task": false}
def gspo_ratio(logp: Tensor, logp_old: Tensor, mask: Tensor) -> Tensor:
    """GSPO's ratio of each token: s of its response, with its own gradient.

    logp, logp_old, mask [B, T]  ->  [B, T], 1 in padding
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab08-gspo_ratio
    d = torch.where(mask, logp - logp_old, 0.0).detach()
    log_s = d.sum(1, keepdim=True) / mask.sum(1, keepdim=True)
    own = torch.where(mask, logp, 0.0)
    return torch.where(mask, (log_s + own - own.detach()).exp(), 1.0)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "gspo_ratio_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("gspo_ratio", gspo_ratio)

# %% nbgrader={"grade": true, "grade_id": "gspo_ratio_hidden", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# 3 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("gspo_ratio", gspo_ratio, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab08-gspo_ratio-hidden
from tinyrl.course import check as _check

_check("gspo_ratio", gspo_ratio, seed=8211)
### END HIDDEN TESTS

# %% [markdown]
# ## 4. Three averages · 三种平均
#
# One loss from those of tokens, `x`. Return all three in this order:
#
# 1. **token mean** (DAPO): over all real tokens of the batch;
# 2. **sequence mean** (GRPO): of each response over its tokens, then over the
#    responses;
# 3. **constant** (Dr. GRPO): the sum of each response over `length`, the
#    longest that generation allows, then the mean over the responses.
#
# 7 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "aggregates", "locked": false, "schema_version": 3, "solution": true, "task": false}
def aggregates(
    x: Tensor, mask: Tensor, length: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Token mean, sequence mean and constant-length average of token losses.

    x, mask [B, T], length >= 1  ->  three scalars []
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab08-aggregates
    rows, n = torch.where(mask, x, 0.0).sum(1), mask.sum(1)
    return rows.sum() / n.sum(), (rows / n).mean(), rows.mean() / length
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "aggregates_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("aggregates", aggregates)

# %% nbgrader={"grade": true, "grade_id": "aggregates_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("aggregates", aggregates, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab08-aggregates-hidden
from tinyrl.course import check as _check

_check("aggregates", aggregates, seed=8258)
### END HIDDEN TESTS

# %% [markdown]
# ## 5. Group advantages · 组内 advantage
#
# `rewards [B]` holds groups of `group_size` responses to the same prompt, one
# group after the other. GRPO (arXiv 2402.03300) takes
#
# $$A_i = \frac{R_i - \operatorname{mean} R}{\operatorname{std} R + 10^{-6}},$$
#
# mean and deviation being those of the group. The paper does not say which
# deviation: here its square is the sum of squares over n - `correction`, so 1
# is what torch does and 0 what numpy does. A group of equal rewards gets
# **exactly 0**. (Its mean can differ from them in the last bit. What does the
# division make of that?)
#
# 8 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "group_advantages", "locked": false, "schema_version": 3, "solution": true, "task": false}
def group_advantages(
    rewards: Tensor, group_size: int, correction: int
) -> Tensor:
    """Rewards less their group's mean, over its deviation plus 1e-6.

    rewards [B], correction 0 or 1  ->  [B]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab08-group_advantages
    R = rewards.view(-1, group_size)
    std = R.std(1, correction=correction, keepdim=True)
    A = (R - R.mean(1, keepdim=True)) / (std + 1e-6)
    equal = R.amax(1, keepdim=True) == R.amin(1, keepdim=True)
    return torch.where(equal, 0.0, A).reshape(-1)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "group_advantages_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("group_advantages", group_advantages)

# %% nbgrader={"grade": true, "grade_id": "group_advantages_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("group_advantages", group_advantages, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab08-group_advantages-hidden
from tinyrl.course import check as _check

_check("group_advantages", group_advantages, seed=8305)
### END HIDDEN TESTS

# %% [markdown]
# ## 6. Dynamic sampling · 动态采样
#
# A group whose rewards are all equal has no advantage. DAPO (arXiv 2503.14476
# §3.2) drops it and samples another prompt. Return which rows of the batch
# stay: all rows of a group that has two different rewards, however little they
# differ. Rewards can be any numbers.
#
# 5 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "informative_rows", "locked": false, "schema_version": 3, "solution": true, "task": false}
def informative_rows(rewards: Tensor, group_size: int) -> Tensor:
    """Which responses belong to a group whose rewards are not all equal.

    rewards [B], a multiple of group_size  ->  boolean [B]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab08-informative_rows
    R = rewards.view(-1, group_size)
    return (R.amax(1) > R.amin(1)).repeat_interleave(group_size)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "informative_rows_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("informative_rows", informative_rows)

# %% nbgrader={"grade": true, "grade_id": "informative_rows_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("informative_rows", informative_rows, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab08-informative_rows-hidden
from tinyrl.course import check as _check

_check("informative_rows", informative_rows, seed=8352)
### END HIDDEN TESTS

# %% [markdown]
# ## 7. SAPO's soft gate · SAPO 的软门
#
# SAPO (arXiv 2511.20347) puts a smooth gate in the place of the clip:
#
# $$\ell = -\frac{4}{\tau}\, \sigma\big(\tau (r - 1)\big)\, A,$$
#
# with $\tau$ = `tau_pos` where A > 0 and `tau_neg` elsewhere. Its gradient by
# the logprob is $-4 s (1 - s)\, r A$ with $s = \sigma(\tau (r - 1))$: PPO's at
# r = 1. The factor 4 s (1 - s) fades to both sides; times r the whole rises on,
# up to r of about 2, and fades from there. Return the loss of each token, 0 in
# the padding.
#
# 7 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "sapo_loss", "locked": false, "schema_version": 3, "solution": true, "task": false}
def sapo_loss(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    tau_pos: float,
    tau_neg: float,
) -> Tensor:
    """SAPO's soft-gated loss of each token.

    logp, logp_old, mask [B, T], advantages [B], taus > 0  ->  [B, T]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab08-sapo_loss
    r = torch.where(mask, logp - logp_old.detach(), 0.0).exp()
    A = advantages[:, None]
    tau = torch.where(A > 0, tau_pos, tau_neg)
    loss = -4 / tau * torch.sigmoid(tau * (r - 1)) * A
    return torch.where(mask, loss, 0.0)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "sapo_loss_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("sapo_loss", sapo_loss)

# %% nbgrader={"grade": true, "grade_id": "sapo_loss_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("sapo_loss", sapo_loss, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab08-sapo_loss-hidden
from tinyrl.course import check as _check

_check("sapo_loss", sapo_loss, seed=8399)
### END HIDDEN TESTS

# %% [markdown]
# ## 8. CISPO's weight · CISPO 的权重
#
# CISPO (arXiv 2506.13585) clips a *weight* and lets the gradient pass beside
# it:
#
# $$\ell = -\operatorname{sg}\big[\operatorname{clip}(r, \text{lower},
# \text{upper})\big]\, A \log \pi.$$
#
# So no token is ever stopped; one that has moved far counts with the bound.
# `lower` and `upper` bound the weight itself. (verl gives widths below and
# above 1, TRL the largest weight.) Return the loss of each token, 0 in the
# padding.
#
# 7 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "cispo_loss", "locked": false, "schema_version": 3, "solution": true, "task": false}
def cispo_loss(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    lower: float,
    upper: float,
) -> Tensor:
    """CISPO's loss of each token: a clipped, detached weight on -A logp.

    logp, logp_old, mask [B, T], advantages [B], lower < 1 < upper  ->  [B, T]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab08-cispo_loss
    w = torch.where(mask, logp - logp_old, 0.0).exp().clamp(lower, upper)
    return -w.detach() * advantages[:, None] * torch.where(mask, logp, 0.0)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "cispo_loss_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("cispo_loss", cispo_loss)

# %% nbgrader={"grade": true, "grade_id": "cispo_loss_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("cispo_loss", cispo_loss, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab08-cispo_loss-hidden
from tinyrl.course import check as _check

_check("cispo_loss", cispo_loss, seed=8446)
### END HIDDEN TESTS

# %% [markdown]
# ## 9. Open question: a run that unlearns
#
# 10 minutes, 4 points, read by a person. If you study alone: write yours, then
# `solution("lab08")` shows an answer, and what a marker looks for.

# %% [markdown] nbgrader={"grade": false, "grade_id": "open_rubric", "locked": true, "points": 0, "schema_version": 3, "solution": false, "task": true}
# A team serves rollouts from an engine with INT4 weights and trains in BF16. To
# save a forward pass they set old := the engine's logprobs: PPO, clip 0.2,
# group advantages. The pass rate falls from 0.36 to 0.05 within 30 steps,
# entropy rises, nothing is NaN. At step 0, before any update, 6 % of tokens are
# clipped. They mark each token of the failed responses: of those that were
# *mistakes* 60 % are clipped, of those that were *right* none. "INT4 is too
# coarse, its samples are worthless," they say, and order more GPUs.
#
# In at most 200 words: why is anything clipped before the first update, and why
# just the mistakes? What does the gradient that is left do, and why does the
# pass rate fall? Name two control runs, each changing one thing, and say what
# each should show if you are right and what if the team is right. A colleague
# offers GSPO with the paper's width, 0.0003 to 0.0004, and the same old
# logprobs, as a cure: what do you answer, and what do you do in production?
#
# One point for each of the four questions.
#
# === BEGIN MARK SCHEME ===
# canary: TINYRL-CANARY-lab08-open-scheme
#
# 1. Old and new policy are two engines, so ratios differ from 1 at once. Most
#    mistakes were sampled where the engine gave them more probability than the
#    trainer does (that is why), so their ratio is often below 0.8, their
#    advantage is negative: the clip takes them for pushed down already.
# 2. What is left of a failed response are its right tokens, whose ratio is near
#    1, with the same negative advantage: they are pushed down and nothing
#    pushes the mistakes down. The policy unlearns what was right.
# 3. Any two that each change one thing: the same INT4 engine and prompts with
#    old logprobs recomputed in the trainer; the engine's old logprobs with the
#    clip opened (0.1 to 10), a soft gate, or CISPO. Both learn if the centre of
#    the clip is the cause, both fail if the samples are worthless. (BF16
#    rollouts alone do not tell: they mend both.) Half a point for one.
# 4. A narrower clip at the same wrong centre: nearly every response lies
#    outside before any update, most are stopped. It is no cure, and no ratio
#    removes the mismatch. Recompute old logprobs (a forward pass), weigh old
#    over rollout beside the loss if need be, alarm on a clip fraction above 0
#    at step 0.
# === END MARK SCHEME ===

# %% [markdown] nbgrader={"grade": true, "grade_id": "open_answer", "locked": false, "points": 4, "schema_version": 3, "solution": true, "task": false}
# ### BEGIN SOLUTION
# canary: TINYRL-CANARY-lab08-open-answer
#
# The ratio compares two engines, so it is off 1 before any update. Most
# mistakes are sampled where the engine likes them more than the trainer does:
# their ratio is below 0.8, their advantage negative, and the clip stops them as
# if they had been punished already. Right tokens of the same failed responses
# have ratios near 1 and keep their negative advantage. So the gradient that is
# left pushes down what was right and leaves the mistakes alone; the policy
# unlearns, its entropy rises. Two controls. First: the same INT4 engine, old
# logprobs recomputed by the trainer. Second: the engine's logprobs kept, the
# clip opened to 0.1 to 10. If the centre of the clip is the cause, both learn;
# if the samples are worthless, both fail. GSPO with the paper's width is a far
# narrower band around the same wrong centre: nearly every response is outside
# it before the first update. It averages the mismatch, it does not remove it.
# In production: recompute, which costs a forward pass, add a bounded weight old
# over rollout outside the loss if need be, and let a clip fraction above 0 at
# the first mini-batch be an alarm.
# ### END SOLUTION

# %% [markdown]
# You are done. `progress()` shows what is left; notebook 08 shows the same
# numbers on one batch of a model, and what becomes of it in training.
