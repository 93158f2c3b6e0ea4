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
# # Lab 07: MoE routers and R3
#
# In a mixture of experts a router sends each token to a few small networks.
# Which ones is a choice, and two engines that hold the same weights can choose
# differently. In this lab you write the router's choice, the numbers that say
# how often and how badly two engines disagree on it, and three remedies:
# replay, a penalty, and the loss that keeps experts evenly busy.
# 63 minutes, 24 points, eight exercises of 2 to 8 lines and one open
# question.
#
# **How it works.** Write your code over `raise NotImplementedError()`, run the
# cell, then run the locked test cell under it: it checks your function at once
# and names the mistake. A second locked cell runs it on inputs you do not see.
# `hint("flip_rate")` gives the next of three hints, `solution("flip_rate")` one
# right answer once you have had a try checked, `progress()` how far you are.
# If a test says `NameError`, run the cell above it first. After a `SyntaxError`
# it still judges your last version that ran.
# `set_language("zh")` 之后，检查结果和提示都用中文显示。
#
# **The arrays.** N tokens, or B responses of T columns, padded on the right;
# E experts (over 100 in large models), of which each token uses k. Router
# logits are `[N, E]` or `[B, T, E]`, chosen experts `[B, T, k]`, whole numbers
# from 0 to E - 1 in any order, each once. `mask [B, T]` is true on real tokens,
# and every row has some. **Padding holds garbage**: NaN, or experts that do not
# exist. Logits of a token never tie unless an exercise says so, but they can
# nearly tie, and be up to 100,000 in size: -10,000 is no infinity. Do not write
# into your arguments.

# %% nbgrader={"grade": false, "grade_id": "setup", "locked": true, "schema_version": 3, "solution": false, "task": false}
import torch
from torch import Tensor

from tinyrl.course import check, hint, progress, set_language, solution

# %% [markdown]
# Two tokens and four experts, small enough to do by hand; they are there to try
# your functions on. Guess before you go on: with k = 2, which of the two tokens
# is nearer to another choice?

# %% nbgrader={"grade": false, "grade_id": "by_hand", "locked": true, "schema_version": 3, "solution": false, "task": false}
by_hand_train = torch.tensor([[2.0, 1.0, 0.5, -1.0], [1.0, 0.75, 0.5, -1.0]])
by_hand_rollout = torch.tensor(
    [[1.75, 1.25, 0.5, -1.0], [1.25, 0.25, 0.75, -1.0]]
)

# %% [markdown]
# ## 1. Choose k experts and weigh them · 选出 k 个专家并加权
#
# A router is one matrix: its logits $z \in \mathbb{R}^E$ say how well each
# expert suits a token. The token goes to the k experts with the largest logits,
# the set $S$, and their outputs are added with weights, the **gates**:
#
# $$g_e = \frac{e^{z_e}}{\sum_{j \in S} e^{z_j}} \ (e \in S),
# \qquad g_e = 0 \text{ otherwise.}$$
#
# Return all E gates of each token. The choice has no gradient; the gates do, and
# through them the router learns. Logits can be large.
#
# 6 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "top_k_gates", "locked": false, "schema_version": 3, "solution": true, "task": false}
def top_k_gates(logits: Tensor, k: int) -> Tensor:
    """Gates of all experts; those of the k chosen sum to 1, the rest is 0.

    logits [N, E], 1 <= k <= E  ->  [N, E]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab07-top_k_gates
    top, experts = logits.topk(k)
    gates = torch.softmax(top, 1)
    return torch.zeros_like(logits).scatter(1, experts, gates)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "top_k_gates_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("top_k_gates", top_k_gates)

# %% nbgrader={"grade": true, "grade_id": "top_k_gates_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("top_k_gates", top_k_gates, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab07-top_k_gates-hidden
from tinyrl.course import check as _check

_check("top_k_gates", top_k_gates, seed=5119)
### END HIDDEN TESTS

# %% [markdown]
# ## 2. The router's margin · 路由间隔
#
# How much must an engine's rounding change before a token goes elsewhere? Sort
# a token's logits, the largest first: $z_{(1)} \ge z_{(2)} \ge \dots$ Its margin
# is
#
# $$z_{(k)} - z_{(k+1)}$$
#
# the distance between the last expert that is in and the first that is out. An
# error of half this size in each of the two, in opposite directions, is enough.
# Here k < E, and the two may tie. Try it on the two tokens from above: were you
# right?
#
# 4 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "router_margin", "locked": false, "schema_version": 3, "solution": true, "task": false}
def router_margin(logits: Tensor, k: int) -> Tensor:
    """How far the k-th largest logit lies above the next, for each token.

    logits [N, E], 1 <= k < E  ->  [N]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab07-router_margin
    ranked = logits.sort(1, descending=True).values
    return ranked[:, k - 1] - ranked[:, k]
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "router_margin_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("router_margin", router_margin)

# %% nbgrader={"grade": true, "grade_id": "router_margin_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("router_margin", router_margin, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab07-router_margin-hidden
from tinyrl.course import check as _check

_check("router_margin", router_margin, seed=5172)
### END HIDDEN TESTS

# %% [markdown]
# ## 3. The flip rate · 翻转率
#
# Both engines read the same tokens and record which experts they used. A token
# **flips** if the two *sets* differ; the order in which an engine lists a set is
# no matter, since the outputs are added. Return the share of real tokens that
# flip.
#
# 6 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "flip_rate", "locked": false, "schema_version": 3, "solution": true, "task": false}
def flip_rate(
    experts_rollout: Tensor, experts_train: Tensor, mask: Tensor
) -> Tensor:
    """Share of the real tokens whose two sets of experts differ.

    experts_rollout, experts_train [B, T, k], mask [B, T]  ->  scalar []
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab07-flip_rate
    ours = experts_train.sort(-1).values
    theirs = experts_rollout.sort(-1).values
    flips = (ours != theirs).any(-1)
    return (flips & mask).sum() / mask.sum()
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "flip_rate_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("flip_rate", flip_rate)

# %% nbgrader={"grade": true, "grade_id": "flip_rate_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("flip_rate", flip_rate, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab07-flip_rate-hidden
from tinyrl.course import check as _check

_check("flip_rate", flip_rate, seed=5225)
### END HIDDEN TESTS

# %% [markdown]
# ## 4. The mismatch given a flip · 以翻转为条件的不一致
#
# Is a mismatch rounding, or is it flips? Split the size of a token's delta,
# $|\Delta_t| = |\log \pi_{\text{train}} - \log \pi_{\text{rollout}}|$, by
# what happened to the token. `flipped[b, t, l]`
# says whether token t took other experts in layer l; a token counts as flipped
# if it did in any layer. Return
#
# 1. the mean of $|\Delta|$ over flipped real tokens,
# 2. its mean over the other real tokens,
# 3. the share of the sum of all $|\Delta|$ that the flipped tokens carry.
#
# There is at least one token of each kind.
#
# 8 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "delta_by_flip", "locked": false, "schema_version": 3, "solution": true, "task": false}
def delta_by_flip(
    logp_train: Tensor, logp_rollout: Tensor, flipped: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean |delta| of flipped and of kept tokens; share of the flipped.

    logp_train, logp_rollout, mask [B, T], flipped [B, T, L]
    ->  three scalars []
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab07-delta_by_flip
    size = (logp_train[mask] - logp_rollout[mask]).abs()
    some = flipped[mask].any(1)
    share = size[some].sum() / size.sum()
    return size[some].mean(), size[~some].mean(), share
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "delta_by_flip_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("delta_by_flip", delta_by_flip)

# %% nbgrader={"grade": true, "grade_id": "delta_by_flip_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("delta_by_flip", delta_by_flip, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab07-delta_by_flip-hidden
from tinyrl.course import check as _check

_check("delta_by_flip", delta_by_flip, seed=5278)
### END HIDDEN TESTS

# %% [markdown]
# ## 5. Expert load and its drift · 专家负载及其漂移
#
# An expert's load is its share of all choices, each real token making k of
# them. Uneven loads leave machines idle, and an engine that routes otherwise
# loads them otherwise. Return the load of each expert in the rollout, the same
# in the trainer, and the drift
#
# $$\tfrac12 \sum_e |\text{load}^{\text{train}}_e -
# \text{load}^{\text{rollout}}_e|,$$
#
# the share of choices that moved, net: flips there and back cancel.
#
# 7 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "load_drift", "locked": false, "schema_version": 3, "solution": true, "task": false}
def load_drift(
    experts_rollout: Tensor, experts_train: Tensor, mask: Tensor, n_experts: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Load of each expert on both sides, and half the sum of |differences|.

    experts_rollout, experts_train [B, T, k], mask [B, T], n_experts E
    ->  [E], [E], scalar []
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab07-load_drift
    def load(experts: Tensor) -> Tensor:
        counts = torch.bincount(experts[mask].flatten(), minlength=n_experts)
        return counts / counts.sum()

    rollout, train = load(experts_rollout), load(experts_train)
    return rollout, train, (train - rollout).abs().sum() / 2
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "load_drift_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("load_drift", load_drift)

# %% nbgrader={"grade": true, "grade_id": "load_drift_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("load_drift", load_drift, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab07-load_drift-hidden
from tinyrl.course import check as _check

_check("load_drift", load_drift, seed=5331)
### END HIDDEN TESTS

# %% [markdown]
# ## 6. Replay the rollout's experts (R3) · 回放采样端的专家（R3）
#
# Rollout routing replay (arXiv 2510.11370): the trainer asks the experts that
# the **rollout** chose, the set $S^{\text{rollout}}$, and weighs them by its
# **own** logits:
#
# $$g_e = \frac{e^{z^{\text{train}}_e}}
# {\sum_{j \in S^{\text{rollout}}} e^{z^{\text{train}}_j}}
# \ (e \in S^{\text{rollout}}).$$
#
# Fixed sets take the jumps away; fresh gates keep the router trainable. The
# rollout's logits are a record: they decide the set and get no gradient.
#
# 7 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "replayed_gates", "locked": false, "schema_version": 3, "solution": true, "task": false}
def replayed_gates(
    logits_train: Tensor, logits_rollout: Tensor, k: int
) -> Tensor:
    """The trainer's gates over the rollout's k experts; 0 for all others.

    logits_train, logits_rollout [N, E], 1 <= k <= E  ->  [N, E]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab07-replayed_gates
    last_in = logits_rollout.topk(k).values[:, k - 1 :]
    out = logits_rollout < last_in
    return logits_train.masked_fill(out, -torch.inf).softmax(1)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "replayed_gates_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("replayed_gates", replayed_gates)

# %% nbgrader={"grade": true, "grade_id": "replayed_gates_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("replayed_gates", replayed_gates, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab07-replayed_gates-hidden
from tinyrl.course import check as _check

_check("replayed_gates", replayed_gates, seed=5384)
### END HIDDEN TESTS

# %% [markdown]
# ## 7. A penalty on the router · 路由一致性惩罚
#
# The other remedy: do not force the choice, train the router to make the same
# one. Let $q$ and $p$ be the softmax over all experts of the rollout's and of the
# trainer's logits. The penalty is the mean over real tokens of
#
# $$\mathrm{KL}(q \| p) = \sum_e q_e (\log q_e - \log p_e).$$
#
# The gradient flows into the trainer's logits alone, and it is finite although
# the padding holds NaN.
#
# 7 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "router_consistency", "locked": false, "schema_version": 3, "solution": true, "task": false}
def router_consistency(
    logits_train: Tensor, logits_rollout: Tensor, mask: Tensor
) -> Tensor:
    """Mean over real tokens of KL(rollout's router || trainer's).

    logits_train, logits_rollout [B, T, E], mask [B, T]  ->  scalar []
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab07-router_consistency
    logp = torch.log_softmax(logits_train[mask], 1)
    logq = torch.log_softmax(logits_rollout[mask].detach(), 1)
    return (logq.exp() * (logq - logp)).sum(1).mean()
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "router_consistency_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("router_consistency", router_consistency)

# %% nbgrader={"grade": true, "grade_id": "router_consistency_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("router_consistency", router_consistency, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab07-router_consistency-hidden
from tinyrl.course import check as _check

_check("router_consistency", router_consistency, seed=5437)
### END HIDDEN TESTS

# %% [markdown]
# ## 8. The balance loss · 负载均衡损失
#
# Left alone, routers tend to love a few experts. Switch (arXiv 2101.03961,
# eq. 4) and GShard add a loss. Over the n real tokens of the batch
#
# $$\mathcal{L} = E \sum_e f_e P_e, \quad
# f_e = \frac{\text{times e was chosen}}{n}, \quad
# P_e = \frac1n \sum \operatorname{softmax}(z)_e$$
#
# with the k largest logits of a token chosen and the softmax over all E experts.
# $f$ is a count and has no gradient; $P$ brings it. With an even load
# $\mathcal{L} = k$.
#
# 8 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "load_balance", "locked": false, "schema_version": 3, "solution": true, "task": false}
def load_balance(logits: Tensor, mask: Tensor, k: int) -> Tensor:
    """E sum_e f_e P_e over the real tokens.

    logits [B, T, E], mask [B, T], 1 <= k <= E  ->  scalar []
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab07-load_balance
    z = logits[mask]
    n, E = z.shape
    counts = torch.bincount(z.topk(k).indices.flatten(), minlength=E)
    return E * (counts / n * z.softmax(1).mean(0)).sum()
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "load_balance_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("load_balance", load_balance)

# %% nbgrader={"grade": true, "grade_id": "load_balance_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("load_balance", load_balance, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab07-load_balance-hidden
from tinyrl.course import check as _check

_check("load_balance", load_balance, seed=5490)
### END HIDDEN TESTS

# %% [markdown]
# ## 9. Open question: a mixture that spikes
#
# 10 minutes, 4 points, read by a person. If you study alone: write yours, then
# `solution("lab07")` shows an answer, and what a marker looks for.

# %% [markdown] nbgrader={"grade": false, "grade_id": "open_rubric", "locked": true, "points": 0, "schema_version": 3, "solution": false, "task": true}
# A team trains a mixture of experts. The engine samples in BF16, the trainer
# recomputes in FP32. Before any update: 2 % of tokens took other experts in
# some layer; mean |delta| is 0.03 on these and 0.0015 on the others. On single
# tokens |delta| reaches 0.6. From batch to batch K3 varies tenfold. "Noise,"
# they say. "We take the mean of ten batches and go on."
#
# In at most 200 words: what share of the summed |delta| do the flipped tokens
# carry (give the number), and why does K3 vary so much more than the flip rate?
# What would replaying the rollout's experts in the trainer (R3) remove, and what
# not? What must be recomputed under replay, and why? Why would R2, replay of the
# trainer's own old routes, not help with this batch, and what is it for?
#
# One point for each of the four questions.
#
# === BEGIN MARK SCHEME ===
# canary: TINYRL-CANARY-lab07-open-scheme
#
# 1. 0.02 * 0.03 = 0.0006 against 0.98 * 0.0015 = 0.00147: the flipped carry
#    29 % of the sum (28 to 30 counts). K3 grows with delta squared, so a few
#    large deltas of a few flips make it; how many of those a batch holds is
#    luck. (Half a point for the number alone.)
# 2. R3 removes the jumps: both engines pass through the same experts. It leaves
#    the rounding of everything else, here about what the others have, 0.0015,
#    and every mismatch that is not of routers (templates, sampler, staleness).
# 3. The gates, from the trainer's own logits by softmax over the replayed set:
#    recorded gates would be constants, the router would get no gradient, and
#    the trainer would not compute its own policy's probability.
# 4. R2 keeps the trainer's choice fixed from the old pass to the updates; here
#    rollout and old pass already differ, and R2's old pass chooses for itself.
#    It is for flips that updates cause, between new and old logprobs.
# === END MARK SCHEME ===

# %% [markdown] nbgrader={"grade": true, "grade_id": "open_answer", "locked": false, "points": 4, "schema_version": 3, "solution": true, "task": false}
# ### BEGIN SOLUTION
# canary: TINYRL-CANARY-lab07-open-answer
#
# Flipped tokens add 0.02 * 0.03 = 0.0006 to the mean, the others 0.98 * 0.0015
# = 0.00147, so 2 % of the tokens carry 29 % of the summed |delta|. K3 goes with
# delta squared: there they carry most, and a batch that happens to hold
# one delta of 0.6 has many times the K3 of one that does not. The flip rate only
# counts them. R3 makes the trainer use the rollout's experts: the jumps
# disappear, and what stays is ordinary rounding, about 0.0015 everywhere, and
# whatever has nothing to do with routers. Under replay only the set is fixed.
# The gates are recomputed by a softmax of the trainer's own logits over that
# set: taken from the record they would be constants, the router would get no
# gradient, and the result would not be the trainer's probability. R2 replays
# what the trainer itself chose when it scored the old policy. On this batch
# that choice already differs from the rollout's, so nothing is repaired; R2
# keeps later updates from flipping tokens between old and new logprobs.
# ### END SOLUTION

# %% [markdown]
# You are done. `progress()` shows what is left; notebook 07 shows the same
# numbers on a mixture that decodes, is scored and is trained.
