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
# # Lab 04: kernels, caches, parallel splits
#
# The same formulas as engines compute them: attention by blocks and in parts, a
# vocabulary and a product shared out among ranks, a norm that rounds five
# times, a cache that forgets digits, a prompt read in pieces.
#
# 74 minutes, 25 points: eight exercises of 1 to 8 lines and one open question.
#
# **How it works.** Write your code over `raise NotImplementedError()`, run the
# cell, then run the locked test cell under it: it checks your function at once
# and names the mistake. A second locked cell runs it on inputs you do not see.
# You may also call, in cells of your own:
#
# | call | what it does |
# |---|---|
# | `check("same_bits", same_bits)` | check an answer |
# | `hint("same_bits")` | the next of three hints |
# | `solution("same_bits")` | one right answer, after a try |
# | `progress()` | how far you have come; kept on this computer only |
#
# If a test says `NameError`, run the cell above it first. After a `SyntaxError`
# it still judges your last version that ran.
# `set_language("zh")` 之后，检查结果和提示都用中文显示。
#
# **Rounding is exact.** Where an exercise says "rounded to BF16", each number
# of your result has to be that BF16 number. Where it doesn't, float32's last
# digits are forgiven. Return tensors, not lists, and do not write into your
# arguments.

# %% nbgrader={"grade": false, "grade_id": "setup", "locked": true, "schema_version": 3, "solution": false, "task": false}
import math

import torch
from torch import Tensor

from tinyrl.course import check, hint, progress, set_language, solution

# %% [markdown]
# Two tensors to try things on. Guess first: how much of 256 + 1 + 1 is left if
# each addition is rounded to BF16?

# %% nbgrader={"grade": false, "grade_id": "by_hand", "locked": true, "schema_version": 3, "solution": false, "task": false}
by_hand_scores = torch.tensor([[2.0, 1.0], [0.5, -300.0]])
by_hand_sums = torch.tensor([256.0, 1.0, 1.0])

# %% [markdown]
# ## 1. One block of online softmax · online softmax 的一步
#
# FlashAttention reads a few keys at a time. What it has seen is kept in three
# things per query: the largest score $m$, the sum $\ell = \sum_j e^{s_j - m}$
# and the output so far, not yet divided, $y = \sum_j e^{s_j - m} v_j$. A new
# block of scores $s$ and values $v$ arrives; return all three as they are
# afterwards. In the end attention is $y / \ell$ (arXiv 2307.08691, algorithm
# 1). Before the first block $m$ is `-1e30`, and $\ell$ and $y$ are 0.
# Scores can be in the thousands, where float32 has few digits left: keep $\ell$
# relative to $m$ throughout.
#
# 10 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "online_step", "locked": false, "schema_version": 3, "solution": true, "task": false}
def online_step(
    m: Tensor, total: Tensor, y: Tensor, s: Tensor, v: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The running maximum, sum and output after one more block of keys.

    m, total [R], y [R, D], s [R, K], v [K, D]  ->  [R], [R], [R, D]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab04-online_step
    higher = torch.cat([m[:, None], s], 1).amax(1)
    shrink = (m - higher).exp()
    p = (s - higher[:, None]).exp()
    return higher, total * shrink + p.sum(1), y * shrink[:, None] + p @ v
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "online_step_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("online_step", online_step)

# %% nbgrader={"grade": true, "grade_id": "online_step_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("online_step", online_step, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab04-online_step-hidden
from tinyrl.course import check as _check

_check("online_step", online_step, seed=5241)
### END HIDDEN TESTS

# %% [markdown]
# ## 2. Two parts of an attention · 合并两部分 attention
#
# Flash-decoding cuts the keys into parts and runs a whole softmax over each, in
# parallel. A part reports its output $y$ (already divided) and the logsumexp of
# its scores. Put two parts together: the output over all keys, and its
# logsumexp.
#
# $$y = \frac{e^{L_1} y_1 + e^{L_2} y_2}{e^{L_1} + e^{L_2}}$$
#
# Scores may be in the hundreds.
#
# 8 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "merge_parts", "locked": false, "schema_version": 3, "solution": true, "task": false}
def merge_parts(
    y1: Tensor, lse1: Tensor, y2: Tensor, lse2: Tensor
) -> tuple[Tensor, Tensor]:
    """Output and logsumexp of two parts of the keys together.

    y1, y2 [R, D], lse1, lse2 [R]  ->  [R, D], [R]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab04-merge_parts
    lse = torch.stack([lse1, lse2]).logsumexp(0)
    w1, w2 = (lse1 - lse).exp(), (lse2 - lse).exp()
    return w1[:, None] * y1 + w2[:, None] * y2, lse
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "merge_parts_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("merge_parts", merge_parts)

# %% nbgrader={"grade": true, "grade_id": "merge_parts_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("merge_parts", merge_parts, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab04-merge_parts-hidden
from tinyrl.course import check as _check

_check("merge_parts", merge_parts, seed=5282)
### END HIDDEN TESTS

# %% [markdown]
# ## 3. A vocabulary on several ranks · 词表分在多个 rank 上
#
# With a large vocabulary each of N ranks holds the logits of one part of it.
# Rank n reports for each token its largest logit `top[n]` and the sum
# `total[n]` $= \sum_v e^{z_v - \text{top}_n}$ over its part. `z` is the logit
# of the token that was sampled, wherever it lies. Return that token's logprob
# under the whole vocabulary. Nobody ever holds all logits.
#
# 8 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "parallel_logp", "locked": false, "schema_version": 3, "solution": true, "task": false}
def parallel_logp(z: Tensor, top: Tensor, total: Tensor) -> Tensor:
    """Logprob of the sampled tokens from what the ranks report.

    z [B], top, total [N, B]  ->  [B]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab04-parallel_logp
    highest = top.amax(0)
    return z - highest - (total * (top - highest).exp()).sum(0).log()
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "parallel_logp_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("parallel_logp", parallel_logp)

# %% nbgrader={"grade": true, "grade_id": "parallel_logp_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("parallel_logp", parallel_logp, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab04-parallel_logp-hidden
from tinyrl.course import check as _check

_check("parallel_logp", parallel_logp, seed=5323)
### END HIDDEN TESTS

# %% [markdown]
# ## 4. A norm that is not fused · 未融合的 norm
#
# RMSNorm is $y = g\, x / \sqrt{\operatorname{mean}(x^2) + \epsilon}$. Run as
# five operations in BF16, each result is rounded: the squares, their mean, the
# scale $1 / \sqrt{\cdot + \epsilon}$ (adding $\epsilon$ and the root are one
# step), the product with $x$, the product with $g$. Return exactly that.
# `t.bfloat16().float()` rounds a tensor; `x` and `gain` are BF16 numbers
# already.
#
# 8 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "unfused_norm", "locked": false, "schema_version": 3, "solution": true, "task": false}
def unfused_norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    """RMSNorm over the last axis, each of five results rounded to BF16.

    x [B, D], gain [D]  ->  [B, D]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab04-unfused_norm
    def bf16(t: Tensor) -> Tensor:
        return t.bfloat16().float()

    mean = bf16(bf16(x * x).mean(1, keepdim=True))
    scale = bf16((mean + eps).rsqrt())
    return bf16(bf16(x * scale) * gain)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "unfused_norm_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("unfused_norm", unfused_norm)

# %% nbgrader={"grade": true, "grade_id": "unfused_norm_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("unfused_norm", unfused_norm, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab04-unfused_norm-hidden
from tinyrl.course import check as _check

_check("unfused_norm", unfused_norm, seed=5364)
### END HIDDEN TESTS

# %% [markdown]
# ## 5. Attention from a quantised cache · 读取量化 cache 的 attention
#
# A cache stores keys and values as integers $-L..L$ (`levels` $L$: 7 in INT4,
# 127 in INT8) with one scale per token, for keys and values apart:
#
# $$\text{scale} = \max_d |x_d| / L, \qquad
# \hat x = \operatorname{round}(x / \text{scale}) \cdot \text{scale}$$
#
# A token is written, then read: by itself first, by all later ones after.
# Return the attention of one query, $\operatorname{softmax}(\hat k q / \sqrt
# D)\, \hat v$. The last of the T tokens is the query's own. No vector is all
# zeros, but it may be tiny; the scales are not rounded.
#
# 10 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "cached_attention", "locked": false, "schema_version": 3, "solution": true, "task": false}
def cached_attention(q: Tensor, k: Tensor, v: Tensor, levels: int) -> Tensor:
    """Attention of one query to a cache that holds `levels` steps each side.

    q [D], k, v [T, D]  ->  [D]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab04-cached_attention
    def stored(x: Tensor) -> Tensor:
        scale = x.abs().amax(1, keepdim=True) / levels
        return (x / scale).round() * scale

    weights = (stored(k) @ q / len(q) ** 0.5).softmax(0)
    return weights @ stored(v)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "cached_attention_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("cached_attention", cached_attention)

# %% nbgrader={"grade": true, "grade_id": "cached_attention_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("cached_attention", cached_attention, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab04-cached_attention-hidden
from tinyrl.course import check as _check

_check("cached_attention", cached_attention, seed=5405)
### END HIDDEN TESTS

# %% [markdown]
# ## 6. What a chunk may see · 一块提示能看到什么
#
# Chunked prefill reads a prompt in pieces. A piece of `tokens` tokens begins
# behind `start` others, which are in the cache already. The key axis has a
# fixed length `keys`; its places behind the piece are unused. Return what each
# query may look at: true for all tokens up to and including itself.
#
# 5 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "chunk_mask", "locked": false, "schema_version": 3, "solution": true, "task": false}
def chunk_mask(start: int, tokens: int, keys: int) -> Tensor:
    """True where a query of the chunk may look.

    start + tokens <= keys  ->  boolean [tokens, keys]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab04-chunk_mask
    return torch.arange(keys) <= start + torch.arange(tokens)[:, None]
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "chunk_mask_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("chunk_mask", chunk_mask)

# %% nbgrader={"grade": true, "grade_id": "chunk_mask_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("chunk_mask", chunk_mask, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab04-chunk_mask-hidden
from tinyrl.course import check as _check

_check("chunk_mask", chunk_mask, seed=5446)
### END HIDDEN TESTS

# %% [markdown]
# ## 7. Partial sums, rank by rank · 逐个 rank 相加的部分和
#
# A row-parallel product $x W^\top$: rank 0 holds the first $K / N$ inputs
# (columns of `x` and of `w`), rank 1 the next, and so on. Each multiplies its
# part in FP32 and sends the result in BF16. The sums are added in the order 0,
# 1, 2 ..., and the running total is BF16 as well. Return it. (Adding two BF16
# tensors gives a BF16 tensor; adding one to an FP32 tensor does not.)
#
# 10 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "ranked_sum", "locked": false, "schema_version": 3, "solution": true, "task": false}
def ranked_sum(x: Tensor, w: Tensor, ranks: int) -> Tensor:
    """The product with partial sums in BF16, added rank by rank.

    x [B, K], w [O, K], ranks divides K  ->  [B, O]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab04-ranked_sum
    total = torch.zeros(len(x), len(w), dtype=torch.bfloat16)
    for a, b in zip(x.chunk(ranks, 1), w.chunk(ranks, 1)):
        total = total + (a @ b.T).bfloat16()
    return total
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "ranked_sum_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("ranked_sum", ranked_sum)

# %% nbgrader={"grade": true, "grade_id": "ranked_sum_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("ranked_sum", ranked_sum, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab04-ranked_sum-hidden
from tinyrl.course import check as _check

_check("ranked_sum", ranked_sum, seed=5487)
### END HIDDEN TESTS

# %% [markdown]
# ## 8. Equal to the bit · 逐位相等
#
# Batch invariance means: row i of the result of a batch has the same **bits**
# as the result of row i alone. Both results are given, FP32. Say for each row
# whether all of its numbers have the same 32 bits. NaN with the same bits is
# equal, 0 and -0 are not.
#
# 5 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "same_bits", "locked": false, "schema_version": 3, "solution": true, "task": false}
def same_bits(together: Tensor, alone: Tensor) -> Tensor:
    """Whether each row is equal to the bit.

    together, alone [B, D] float32  ->  boolean [B]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab04-same_bits
    return (together.view(torch.int32) == alone.view(torch.int32)).all(1)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "same_bits_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("same_bits", same_bits)

# %% nbgrader={"grade": true, "grade_id": "same_bits_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("same_bits", same_bits, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab04-same_bits-hidden
from tinyrl.course import check as _check

_check("same_bits", same_bits, seed=5528)
### END HIDDEN TESTS

# %% [markdown]
# ## 9. Open question: equal weights, unequal logprobs
#
# 10 minutes, 4 points, read by a person. If you study alone: write yours, then
# `solution("lab04")` shows an answer, and what a marker looks for.

# %% [markdown] nbgrader={"grade": false, "grade_id": "open_rubric", "locked": true, "points": 0, "schema_version": 3, "solution": false, "task": true}
# A team trains in BF16 on 8 tensor-parallel ranks and samples in BF16 on 2,
# with an FP8 KV cache and a fused RMSNorm (the trainer's is not fused). Weights
# are equal to the bit; they checked. Mean |delta| is 0.012 a token. One
# engineer says: "The engine gives the same text every time I run it, so it
# isn't numerics." A second one wants to switch on batch-invariant kernels in
# the engine.
#
# In at most 200 words: name the differences there are and say which you expect
# to carry most of the 0.012, and why. What is wrong with the first engineer's
# conclusion? What would the second one's switch repair, and what not? In which
# order would you look for the cause, and by which experiment at each step?
#
# One point for each of the four questions.
#
# === BEGIN MARK SCHEME ===
# canary: TINYRL-CANARY-lab04-open-scheme
#
# 1. Cache (FP8 against none), norm (rounded once against at each step), partial
#    sums (number of ranks, and the format they travel in), and the orders of
#    addition that come with all of them. The cache should dominate: three
#    mantissa bits where the rest has seven, so about 16 times the error of a
#    BF16 step. Any reasoned estimate counts; "attention kernels" alone does
#    not.
# 2. Determinism is: the same run twice. It says nothing about another batch,
#    nor about another program. A fault can be perfectly reproducible.
# 3. It makes a token's logprob independent of its company and of chunking, so
#    results become reproducible under load. The cache, the norm and the ranks
#    still differ between the two sides, so delta stays.
# 4. Fixed tokens, one part put back at a time: cache to BF16 first (largest
#    suspect), then the same norm on both sides, then equal ranks or FP32
#    partial sums, last the order; each time mean |delta| (or K3) on the same
#    responses. Full points need one change at a time and fixed tokens.
# === END MARK SCHEME ===

# %% [markdown] nbgrader={"grade": true, "grade_id": "open_answer", "locked": false, "points": 4, "schema_version": 3, "solution": true, "task": false}
# ### BEGIN SOLUTION
# canary: TINYRL-CANARY-lab04-open-answer
#
# They differ in the cache, in where the norm rounds, in how many partial sums
# are added and in what format they travel, and so in all orders of addition. I
# expect the FP8 cache to carry most: it has three mantissa bits where the rest
# has seven, 16 times the rounding error, and each later token reads it. Norm
# and partial sums cost about one BF16 step each; order alone next to nothing.
#
# "The same text every time" is determinism. A wrong number can be reproduced,
# and it does not say that the trainer computes the same one. Batch-invariant
# kernels would make a token independent of its neighbours in the batch, which
# is worth having, but the engine would still read an FP8 cache and fuse its
# norm: delta stays.
#
# I would keep one set of responses and put back one part at a time: first the
# cache in BF16, then the trainer's norm, then partial sums in FP32 or equal
# ranks, last fixed reduction order, and look at mean |delta| and K3 after each.
# What brings it down is a cause; what is left at the end is order.
# ### END SOLUTION

# %% [markdown]
# You are done. `progress()` shows what is left; notebook 04 shows the same
# things inside a whole model.
