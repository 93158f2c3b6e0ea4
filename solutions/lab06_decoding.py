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
# # Lab 06: decoding
#
# An engine divides logits by a temperature, lowers those of tokens it has seen,
# cuts the unlikely ones, and samples from what is left. A trainer that computes
# the logprob of another distribution has no rounding problem: it has the wrong
# policy. In this lab you write the processors, the constant that a cut leaves in
# every ratio, the replay that removes it, and the number that nothing removes.
# 61 minutes, 24 points, eight exercises of 1 to 4 lines and one open question.
#
# **How it works.** Write your code over `raise NotImplementedError()`, run the
# cell, then run the locked test cell under it: it checks your function at once
# and names the mistake. A second locked cell runs it on inputs you do not see.
# `hint("top_p_kept")` gives the next of three hints, `solution("top_p_kept")`
# one right answer once you have had a try checked, `progress()` how far you are.
# If a test says `NameError`, run the cell above it first. After a `SyntaxError`
# it still judges your last version that ran.
# `set_language("zh")` 之后，检查结果和提示都用中文显示。
#
# **The arrays.** N tokens, or B responses of T columns, padded on the right; a
# vocabulary of V. Logits are `[N, V]` or `[B, T, V]`, `kept` has their shape and
# is true for what a sampler left. `mask [B, T]` is true on real tokens, and every
# row has some. **Padding holds garbage**: NaN, or sets that mean nothing. Logits
# can be large, up to 100,000 in size: -10,000 is one of them and no infinity.
# Do not write into your arguments.

# %% nbgrader={"grade": false, "grade_id": "setup", "locked": true, "schema_version": 3, "solution": false, "task": false}
import torch
from torch import Tensor

from tinyrl.course import check, hint, progress, set_language, solution

# %% [markdown]
# One distribution of four tokens, to try your functions on. Guess before you go
# on: how many of them does top-p 0.7 keep, and what is their mass?

# %% nbgrader={"grade": false, "grade_id": "by_hand", "locked": true, "schema_version": 3, "solution": false, "task": false}
by_hand = torch.tensor([[0.5, 0.25, 0.15, 0.1]]).log()

# %% [markdown]
# ## 1. Logprobs at a temperature · 温度下的 logprob
#
# The temperature T divides the logits before the softmax:
#
# $$\log p_T(a) = \frac{z_a}{T} - \log \sum_b e^{z_b / T}.$$
#
# T above 1 flattens, below 1 sharpens. Return the logprobs of the whole
# vocabulary. Logits can lie 1000 apart.
#
# 4 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "tempered_logp", "locked": false, "schema_version": 3, "solution": true, "task": false}
def tempered_logp(logits: Tensor, temperature: float) -> Tensor:
    """Logprobs of all tokens under logits / temperature.

    logits [N, V], temperature > 0  ->  [N, V]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab06-tempered_logp
    return torch.log_softmax(logits / temperature, 1)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "tempered_logp_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("tempered_logp", tempered_logp)

# %% nbgrader={"grade": true, "grade_id": "tempered_logp_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("tempered_logp", tempered_logp, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab06-tempered_logp-hidden
from tinyrl.course import check as _check

_check("tempered_logp", tempered_logp, seed=5127)
### END HIDDEN TESTS

# %% [markdown]
# ## 2. Top-k · top-k 保留哪些
#
# Top-k keeps the k tokens with the largest logits. Where several tie with the
# k-th largest, all of them stay, as in `transformers`: their order would be
# chance. Return which tokens are kept. With k = 1 this is greedy decoding.
#
# 5 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "top_k_kept", "locked": false, "schema_version": 3, "solution": true, "task": false}
def top_k_kept(logits: Tensor, k: int) -> Tensor:
    """Which tokens are at least as large as the k-th largest of their row.

    logits [N, V], 1 <= k <= V  ->  boolean [N, V]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab06-top_k_kept
    border = logits.topk(k).values[:, -1:]
    return logits >= border
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "top_k_kept_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("top_k_kept", top_k_kept)

# %% nbgrader={"grade": true, "grade_id": "top_k_kept_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("top_k_kept", top_k_kept, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab06-top_k_kept-hidden
from tinyrl.course import check as _check

_check("top_k_kept", top_k_kept, seed=5174)
### END HIDDEN TESTS

# %% [markdown]
# ## 3. Top-p · top-p 保留哪些
#
# Top-p, or nucleus sampling (arXiv 1904.09751): go through the tokens from
# the likeliest on and stop as soon as their probabilities sum to p or more.
# The token that **crosses** p is kept, so at least one always is. Return
# which tokens are kept, in the order of the vocabulary. No sum comes nearer to
# p than 0.0005, and no two tokens tie. Were you right about `by_hand`?
#
# 8 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "top_p_kept", "locked": false, "schema_version": 3, "solution": true, "task": false}
def top_p_kept(logits: Tensor, p: float) -> Tensor:
    """The fewest likeliest tokens of each row whose probabilities reach p.

    logits [N, V], 0 < p < 1  ->  boolean [N, V]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab06-top_p_kept
    q, order = torch.softmax(logits, 1).sort(1, descending=True)
    before = q.cumsum(1) - q
    return torch.zeros_like(logits).bool().scatter(1, order, before < p)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "top_p_kept_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("top_p_kept", top_p_kept)

# %% nbgrader={"grade": true, "grade_id": "top_p_kept_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("top_p_kept", top_p_kept, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab06-top_p_kept-hidden
from tinyrl.course import check as _check

_check("top_p_kept", top_p_kept, seed=5221)
### END HIDDEN TESTS

# %% [markdown]
# ## 4. Min-p · min-p 保留哪些
#
# Min-p (arXiv 2407.01082) keeps the tokens whose probability is at least
# `min_p` times that of the likeliest token. Where the model is sure, this
# cuts nearly all; where it is not, nearly nothing. No token lies on the border.
#
# 5 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "min_p_kept", "locked": false, "schema_version": 3, "solution": true, "task": false}
def min_p_kept(logits: Tensor, min_p: float) -> Tensor:
    """Which tokens are at least min_p times as likely as their row's likeliest.

    logits [N, V], 0 < min_p < 1  ->  boolean [N, V]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab06-min_p_kept
    q = torch.softmax(logits, 1)
    return q >= min_p * q.amax(1, keepdim=True)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "min_p_kept_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("min_p_kept", min_p_kept)

# %% nbgrader={"grade": true, "grade_id": "min_p_kept_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("min_p_kept", min_p_kept, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab06-min_p_kept-hidden
from tinyrl.course import check as _check

_check("min_p_kept", min_p_kept, seed=5268)
### END HIDDEN TESTS

# %% [markdown]
# ## 5. The repetition penalty · 重复惩罚
#
# A penalty r above 1 makes tokens that stand in the text so far less likely.
# CTRL (arXiv 1909.05858) divides their logits by r. A negative logit would
# *grow* by that, so it is multiplied instead, as `transformers` and engines
# do. How often a token occurred is no matter. Tokens not in `ids` keep their
# logits. The gradient flows through each logit once, however often its token
# occurred.
#
# 7 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "repetition_penalty", "locked": false, "schema_version": 3, "solution": true, "task": false}
def repetition_penalty(logits: Tensor, ids: Tensor, penalty: float) -> Tensor:
    """Logits with those of the tokens in each row's ids made smaller.

    logits [N, V], ids [N, L] in 0..V-1, penalty > 0  ->  [N, V]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab06-repetition_penalty
    times = torch.nn.functional.one_hot(ids, logits.shape[1]).sum(1)
    factor = torch.where(logits > 0, 1 / penalty, penalty)
    return torch.where(times > 0, logits * factor, logits)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "repetition_penalty_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("repetition_penalty", repetition_penalty)

# %% nbgrader={"grade": true, "grade_id": "repetition_penalty_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("repetition_penalty", repetition_penalty, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab06-repetition_penalty-hidden
from tinyrl.course import check as _check

_check("repetition_penalty", repetition_penalty, seed=5315)
### END HIDDEN TESTS

# %% [markdown]
# ## 6. The constant log S · 常数 log S
#
# The engine samples from $p(a)/S$ over the kept set $K$, with $S = \sum_{a
# \in K} p(a)$, and reports its logarithm. A trainer that knows nothing of the
# cut computes $\log p(a)$. So whichever token was sampled,
#
# $$\delta = \log p(a) - \log \frac{p(a)}{S} = \log S.$$
#
# Return $\log S$ of each token. $p$ is the softmax of the logits over
# everything; at least one token is kept. It can be that the kept ones have
# next to no probability.
#
# 7 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "kept_log_mass", "locked": false, "schema_version": 3, "solution": true, "task": false}
def kept_log_mass(logits: Tensor, kept: Tensor) -> Tensor:
    """log of the probability of the kept tokens, for each row.

    logits [N, V], kept boolean [N, V]  ->  [N], never above 0
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab06-kept_log_mass
    cut = logits.masked_fill(~kept, -torch.inf)
    return cut.logsumexp(1) - logits.logsumexp(1)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "kept_log_mass_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("kept_log_mass", kept_log_mass)

# %% nbgrader={"grade": true, "grade_id": "kept_log_mass_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("kept_log_mass", kept_log_mass, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab06-kept_log_mass-hidden
from tinyrl.course import check as _check

_check("kept_log_mass", kept_log_mass, seed=5362)
### END HIDDEN TESTS

# %% [markdown]
# ## 7. Replay the sampling mask · 回放采样掩码
#
# The remedy (DeepSeek-V3.2, arXiv 2512.02556 §3.1): the engine hands over the
# set that it kept for each token, and the trainer normalises its **own**
# logits over this set,
#
# $$\log \pi(a_t) = z_{a_t} - \log \sum_{b \in K_t} e^{z_b}.$$
#
# Sampled tokens are always kept. Return 0 in the padding. The gradient must
# be finite although the padding's logits are NaN.
#
# 9 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "replayed_logp", "locked": false, "schema_version": 3, "solution": true, "task": false}
def replayed_logp(
    logits: Tensor, ids: Tensor, kept: Tensor, mask: Tensor
) -> Tensor:
    """The trainer's logprob of each token over the engine's kept set.

    logits, kept [B, T, V], ids, mask [B, T]  ->  [B, T], 0 in padding
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab06-replayed_logp
    z = logits[mask].masked_fill(~kept[mask], -torch.inf)
    logp = z.log_softmax(1).gather(1, ids[mask][:, None])
    return mask.to(z).masked_scatter(mask, logp)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "replayed_logp_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("replayed_logp", replayed_logp)

# %% nbgrader={"grade": true, "grade_id": "replayed_logp_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("replayed_logp", replayed_logp, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab06-replayed_logp-hidden
from tinyrl.course import check as _check

_check("replayed_logp", replayed_logp, seed=5409)
### END HIDDEN TESTS

# %% [markdown]
# ## 8. What can never be drawn · 永远抽不到的部分
#
# A weight repairs what was drawn in the wrong proportion. What is never drawn
# gets no weight at all. Return the mean over real tokens of the trainer's
# probability outside the kept set, $1 - S$: by so much every estimate can be
# wrong, whatever the correction. The tail may be as small as 1e-9: add up
# what is cut.
#
# 6 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "unreachable_mass", "locked": false, "schema_version": 3, "solution": true, "task": false}
def unreachable_mass(logits: Tensor, kept: Tensor, mask: Tensor) -> Tensor:
    """Mean probability of the trainer's policy on tokens that were cut.

    logits, kept [B, T, V], mask [B, T]  ->  scalar []
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab06-unreachable_mass
    p = torch.softmax(logits[mask], 1)
    return torch.where(kept[mask], 0.0, p).sum(1).mean()
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "unreachable_mass_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("unreachable_mass", unreachable_mass)

# %% nbgrader={"grade": true, "grade_id": "unreachable_mass_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("unreachable_mass", unreachable_mass, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab06-unreachable_mass-hidden
from tinyrl.course import check as _check

_check("unreachable_mass", unreachable_mass, seed=5456)
### END HIDDEN TESTS

# %% [markdown]
# ## 9. Open question: a ratio that is never 1
#
# 10 minutes, 4 points, read by a person. If you study alone: write yours, then
# `solution("lab06")` shows an answer, and what a marker looks for.

# %% [markdown] nbgrader={"grade": false, "grade_id": "open_rubric", "locked": true, "points": 0, "schema_version": 3, "solution": false, "task": true}
# A team samples with top-p 0.9 at temperature 1; the engine reports processed
# logprobs. The trainer takes a softmax over the whole vocabulary. Before any
# update, mean delta is -0.06 a token and no token's delta is above 0. Responses
# have 200 tokens. A sequence-level correction masks ratios outside 0.1 to 3, and
# the loss is 0 at every step. "Our engine must be broken," they say. Greedy
# evaluation of the checkpoint looks perfect; users of the deployment, which runs
# at temperature 1 without top-p, complain.
#
# In at most 200 words: what is the ratio of a typical response (give the
# number), and why is the loss 0? Which two facts say that this is a cut and
# neither rounding nor a temperature? What should they change, what has to be
# recorded and what recomputed, and what will still not be repaired? Why did their
# evaluation see nothing, and how should they evaluate?
#
# One point for each of the four questions.
#
# === BEGIN MARK SCHEME ===
# canary: TINYRL-CANARY-lab06-open-scheme
#
# 1. 200 * -0.06 = -12, so the ratio is exp(-12) = 6e-6 (5e-6 to 7e-6 counts):
#    far below 0.1, every response is masked, nothing is left in the loss. (Half
#    a point for the number alone.)
# 2. All deltas have one sign: rounding and temperature leave both. And each lies
#    between log 0.9 = -0.105 and 0: delta is log S, whichever token was drawn.
# 3. Replay: record the kept set of every token in the engine, recompute the
#    logprobs from the trainer's own logits over that set (their gradient). Or
#    sample without a cut. Tokens outside the sets stay undrawn: no weight and no
#    replay teaches the policy about its tail.
# 4. Greedy decoding looks at the likeliest token only, never at the tail that
#    temperature 1 without top-p draws from. Evaluate by sampling on the stack
#    that serves, with its parameters: success, and length and format.
# === END MARK SCHEME ===

# %% [markdown] nbgrader={"grade": true, "grade_id": "open_answer", "locked": false, "points": 4, "schema_version": 3, "solution": true, "task": false}
# ### BEGIN SOLUTION
# canary: TINYRL-CANARY-lab06-open-answer
#
# A response's log ratio is 200 * -0.06 = -12, so its ratio is exp(-12) = 6e-6.
# The mask keeps 0.1 to 3: every response is dropped, and the loss is an average
# of nothing. The engine is fine. It normalises over what top-p left, the trainer
# over everything, so each delta is log S. Two facts say so: no delta is above 0,
# while rounding and temperature move tokens both ways; and with S at least 0.9
# each delta lies between log 0.9 = -0.105 and 0. They should sample without
# top-p, or replay: the engine records the kept set of every token, and the
# trainer recomputes its logprobs, old and new, from its own logits over that set.
# The ratio is then 1 before an update. What is outside the sets is still never
# drawn, so the policy's mistakes there are never punished, and no weight changes
# that. Greedy evaluation asks for the likeliest token alone and cannot see the
# tail; users draw from it. Evaluate by sampling on the serving stack, with its
# temperature and without top-p: success, and length and format, too.
# ### END SOLUTION

# %% [markdown]
# You are done. `progress()` shows what is left; notebook 06 shows the same
# numbers on a model that decodes, is scored and is trained.
