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
# # Lab 03: number formats
#
# A format is a finite set of numbers, and most of what two engines disagree on
# is which of them they keep. In this lab you write the ten small functions that
# say what a format holds, how it rounds, where it ends, and what that does to a
# softmax, to gradients and to weights. 82 minutes, 30 points, ten exercises of
# 2 to 12 lines and one open question.
#
# **How it works.** Write your code over `raise NotImplementedError()`, run the
# cell, then run the locked test cell under it: it checks your function at once
# and names the mistake, not only that there is one. A second locked cell runs
# it on inputs you do not see. You may also call, in cells of your own:
#
# | call | what it does |
# |---|---|
# | `check("spacing", spacing)` | check an answer |
# | `hint("spacing")` | the next of three hints; `hint("spacing", 1)` the first |
# | `solution("spacing")` | one right answer, once you have had a try checked |
# | `progress()` | how far you have come; kept on this computer only |
#
# If a test says `NameError`, run the cell above it first. After a `SyntaxError`
# it still judges your last version that ran.
# `set_language("zh")` 之后，检查结果和提示都用中文显示。
#
# **The formats.** Sign, `exponent_bits` E and `mantissa_bits` M, in this order,
# as IEEE 754 has them: the stored exponent is 2^(E-1) - 1 (the *bias*) more
# than the real one; stored exponent 0 is for subnormal numbers, all ones for
# infinity and NaN. FP16 is E = 5, M = 10, BF16 is E = 8, M = 7. Tensors are
# float32 and hold ordinary, finite numbers: what you return may be infinite,
# what you get is not. Do not write into your arguments, and do not let torch
# cast for you: `x.half()` knows two formats, your functions know all.

# %% nbgrader={"grade": false, "grade_id": "setup", "locked": true, "schema_version": 3, "solution": false, "task": false}
import math

import torch
from torch import Tensor

from tinyrl.course import check, hint, progress, set_language, solution

# %% [markdown]
# How far apart do you think the numbers of FP16 and of BF16 are near 1000? And
# what is the largest number of each? Guess, then ask torch:

# %% nbgrader={"grade": false, "grade_id": "by_hand", "locked": true, "schema_version": 3, "solution": false, "task": false}
for dtype in (torch.float16, torch.bfloat16):
    near = torch.tensor(1000.0, dtype=dtype)
    there = torch.tensor(2000.0, dtype=dtype)
    up = near.nextafter(there).item()
    print(dtype, "after 1000 comes", up, "largest", torch.finfo(dtype).max)

# %% [markdown]
# ## 1. From bits to a number · 从比特到数值
#
# Sign, exponent, mantissa: a normal number is
#
# $$(-1)^s \cdot \left(1 + \frac{m}{2^M}\right) \cdot 2^{e - \text{bias}}$$
#
# with $e$ and $m$ the two fields read as whole numbers. Where $e = 0$ there is no
# leading 1 and the exponent is $1 - \text{bias}$: the subnormal numbers, and 0.
# Where $e$ is all ones and $m = 0$ the number is infinite. (With another $m$ it
# is NaN, which is not asked.) `bits` holds zeros and ones, the sign first.
#
# 10 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "decode", "locked": false, "schema_version": 3, "solution": true, "task": false}
def decode(bits: Tensor, exponent_bits: int) -> float:
    """The number that a pattern stands for.

    bits [1 + E + M], whole numbers 0 and 1  ->  one number
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab03-decode
    digits = "".join(str(bit) for bit in bits.tolist())
    e = int(digits[1 : 1 + exponent_bits], 2)
    m = int(digits[1 + exponent_bits :], 2)
    M, bias = len(digits) - 1 - exponent_bits, 2 ** (exponent_bits - 1) - 1
    if e > 2 * bias:
        size = math.inf
    elif e == 0:
        size = m / 2**M * 2.0 ** (1 - bias)
    else:
        size = (1 + m / 2**M) * 2.0 ** (e - bias)
    return -size if bits[0] else size
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "decode_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("decode", decode)

# %% nbgrader={"grade": true, "grade_id": "decode_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("decode", decode, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab03-decode-hidden
from tinyrl.course import check as _check

_check("decode", decode, seed=5137)
### END HIDDEN TESTS

# %% [markdown]
# ## 2. The gap between neighbours · 相邻两数的间距
#
# Between $2^k$ and $2^{k+1}$ a format has $2^M$ numbers, evenly spaced:
#
# $$\text{spacing}(x) = 2^{\,k - M}, \qquad k = \lfloor \log_2 |x| \rfloor$$
#
# but $k$ never falls below $1 - \text{bias}$, the exponent of the smallest normal
# number: from there down to 0 the gap stays. (No upper end is asked for here.)
#
# 8 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "spacing", "locked": false, "schema_version": 3, "solution": true, "task": false}
def spacing(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    """The gap between neighbouring numbers of the format around each x.

    x [N]  ->  [N]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab03-spacing
    lowest = 2.0 ** (2 - 2 ** (exponent_bits - 1))
    _, exponent = torch.frexp(x.abs().clamp(min=lowest))
    return 2.0 ** (exponent - 1 - mantissa_bits)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "spacing_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("spacing", spacing)

# %% nbgrader={"grade": true, "grade_id": "spacing_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("spacing", spacing, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab03-spacing-hidden
from tinyrl.course import check as _check

_check("spacing", spacing, seed=5174)
### END HIDDEN TESTS

# %% [markdown]
# ## 3. Round to nearest, ties to even · 舍入到最近，居中取偶
#
# The nearest number with M mantissa bits. Where x lies exactly in the middle of
# two, the one whose last bit is 0 is taken, so that the errors of many roundings
# have no sign. Here the exponent has no limits: no overflow, no subnormals.
#
# 8 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "round_nearest", "locked": false, "schema_version": 3, "solution": true, "task": false}
def round_nearest(x: Tensor, mantissa_bits: int) -> Tensor:
    """Each x rounded to M mantissa bits, ties to even.

    x [N]  ->  [N]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab03-round_nearest
    fraction, exponent = torch.frexp(x)
    steps = 2.0 ** (mantissa_bits + 1)
    return torch.ldexp((fraction * steps).round() / steps, exponent)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "round_nearest_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("round_nearest", round_nearest)

# %% nbgrader={"grade": true, "grade_id": "round_nearest_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("round_nearest", round_nearest, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab03-round_nearest-hidden
from tinyrl.course import check as _check

_check("round_nearest", round_nearest, seed=5211)
### END HIDDEN TESTS

# %% [markdown]
# ## 4. Store a number · 存储一个数
#
# Now with both ends. What is rounded past the largest number,
# $(2 - 2^{-M}) \cdot 2^{\text{bias}}$, becomes infinite, with its sign. Below the
# smallest normal number, $2^{1 - \text{bias}}$, the gap stays and numbers lose
# their bits one after another, down to 0: *gradual underflow*.
#
# 10 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "cast", "locked": false, "schema_version": 3, "solution": true, "task": false}
def cast(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    """Each x as the format stores it: rounded, subnormal, 0 or infinite.

    x [N]  ->  [N]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab03-cast
    bias = 2 ** (exponent_bits - 1) - 1
    _, exponent = torch.frexp(x.abs().clamp(min=2.0 ** (1 - bias)))
    step = 2.0 ** (exponent - 1 - mantissa_bits)
    y = (x / step).round() * step
    return torch.where(y.abs() < 2.0 ** (bias + 1), y, y * math.inf)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "cast_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("cast", cast)

# %% nbgrader={"grade": true, "grade_id": "cast_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("cast", cast, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab03-cast-hidden
from tinyrl.course import check as _check

_check("cast", cast, seed=5248)
### END HIDDEN TESTS

# %% [markdown]
# ## 5. A sum in few bits · 用很少的比特求和
#
# An accumulator with M mantissa bits: start at 0, add `x[0]`, round the sum, add
# `x[1]`, round again, and so on. The terms may have more bits; they are added as
# they are. At some point the terms are below half of the sum's gap, and it stops
# growing. That is why products of BF16 numbers are added
# up in FP32, and why weights that are trained are kept in FP32 too.
#
# 6 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "running_sum", "locked": false, "schema_version": 3, "solution": true, "task": false}
def running_sum(x: Tensor, mantissa_bits: int) -> Tensor:
    """The sum of x from left to right, rounded after each addition.

    x [N]  ->  scalar []
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab03-running_sum
    total = torch.zeros(())
    for value in x:
        fraction, exponent = torch.frexp(total + value)
        steps = 2.0 ** (mantissa_bits + 1)
        total = torch.ldexp((fraction * steps).round() / steps, exponent)
    return total
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "running_sum_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("running_sum", running_sum)

# %% nbgrader={"grade": true, "grade_id": "running_sum_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("running_sum", running_sum, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab03-running_sum-hidden
from tinyrl.course import check as _check

_check("running_sum", running_sum, seed=5285)
### END HIDDEN TESTS

# %% [markdown]
# ## 6. logsumexp without overflow · 不溢出的 logsumexp
#
# Every logprob is a logit minus
#
# $$\operatorname{lse}(z) = \log \sum_v e^{z_v} = c + \log \sum_v e^{z_v - c}$$
#
# for any $c$. In FP16 $e^{12}$ is infinite, in FP32 $e^{89}$ is. Choose $c$ so
# that nothing overflows, in rows that may lie far from each other. The gradient
# is the softmax, and it has to arrive. (torch has a `logsumexp` of its own; this
# is what is in it.)
#
# 6 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "stable_logsumexp", "locked": false, "schema_version": 3, "solution": true, "task": false}
def stable_logsumexp(z: Tensor) -> Tensor:
    """log sum exp over the last axis.

    z [..., V]  ->  [...]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab03-stable_logsumexp
    top = z.max(-1, keepdim=True).values
    return ((z - top).exp().sum(-1, keepdim=True).log() + top).squeeze(-1)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "stable_logsumexp_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("stable_logsumexp", stable_logsumexp)

# %% nbgrader={"grade": true, "grade_id": "stable_logsumexp_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("stable_logsumexp", stable_logsumexp, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab03-stable_logsumexp-hidden
from tinyrl.course import check as _check

_check("stable_logsumexp", stable_logsumexp, seed=5322)
### END HIDDEN TESTS

# %% [markdown]
# ## 7. Flushed gradients · 被冲成 0 的梯度
#
# The loss is multiplied by `scale`, and so is every gradient; the product is
# stored in the format. Of the gradients that were not 0, which share becomes 0?
#
# The smallest number of a format is $2^{1 - \text{bias} - M}$. Half of it, and
# what is smaller, rounds to 0 (the half itself is a tie, and 0 is even).
#
# 7 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "flushed_share", "locked": false, "schema_version": 3, "solution": true, "task": false}
def flushed_share(
    grad: Tensor, scale: float, exponent_bits: int, mantissa_bits: int
) -> Tensor:
    """Share of nonzero gradients that the format turns into 0.

    grad [N]  ->  scalar []
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab03-flushed_share
    limit = 2.0 ** (1 - 2 ** (exponent_bits - 1) - mantissa_bits)
    some = grad != 0
    flushed = some & ((grad * scale).abs() <= limit)
    return flushed.sum() / some.sum()
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "flushed_share_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("flushed_share", flushed_share)

# %% nbgrader={"grade": true, "grade_id": "flushed_share_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("flushed_share", flushed_share, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab03-flushed_share-hidden
from tinyrl.course import check as _check

_check("flushed_share", flushed_share, seed=5359)
### END HIDDEN TESTS

# %% [markdown]
# ## 8. Choose a loss scale · 选择 loss scale
#
# One infinite gradient spoils the whole step. Return the largest power of two
# by which all gradients can be multiplied without passing `largest`, the largest
# number of the format. A power of two, since it changes exponents only: scaling
# up and down again then loses nothing.
#
# 5 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "largest_scale", "locked": false, "schema_version": 3, "solution": true, "task": false}
def largest_scale(grad: Tensor, largest: float) -> float:
    """The largest power of two s with s * max|grad| <= largest.

    grad [N], not all 0  ->  one number
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab03-largest_scale
    return 2.0 ** math.floor(math.log2(largest / grad.abs().max().item()))
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "largest_scale_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("largest_scale", largest_scale)

# %% nbgrader={"grade": true, "grade_id": "largest_scale_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("largest_scale", largest_scale, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab03-largest_scale-hidden
from tinyrl.course import check as _check

_check("largest_scale", largest_scale, seed=5396)
### END HIDDEN TESTS

# %% [markdown]
# ## 9. INT8 and INT4 weights · INT8 与 INT4 权重
#
# Integers have no exponent. A row of weights (an output channel) shares one scale
# instead, and a weight is a whole number of steps:
#
# $$s = \frac{\max_j |w_j|}{2^{b-1} - 1}, \qquad
# \hat w_j = s \cdot \operatorname{round}(w_j / s)$$
#
# so codes run from -127 to 127 for $b = 8$. A row of zeros stays zeros, and one
# of tiny weights, 1e-20, has a tiny scale. Return the weights that the product
# will see, $\hat w$, not the codes.
#
# 8 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "quantise_rows", "locked": false, "schema_version": 3, "solution": true, "task": false}
def quantise_rows(w: Tensor, bits: int) -> Tensor:
    """Weights after symmetric quantisation with one scale for each row.

    w [outputs, inputs]  ->  [outputs, inputs]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab03-quantise_rows
    levels = 2 ** (bits - 1) - 1
    scale = (w.abs().amax(-1, keepdim=True) / levels).clamp(min=1e-30)
    return (w / scale).round() * scale
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "quantise_rows_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("quantise_rows", quantise_rows)

# %% nbgrader={"grade": true, "grade_id": "quantise_rows_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("quantise_rows", quantise_rows, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab03-quantise_rows-hidden
from tinyrl.course import check as _check

_check("quantise_rows", quantise_rows, seed=5433)
### END HIDDEN TESTS

# %% [markdown]
# ## 10. What three bits are worth · 三位尾数值多少
#
# Two engines store the same numbers with `coarse` and with `fine` mantissa bits.
# By which factor is the logprob error of a token larger in the coarse one, and by
# which factor is K3, which for a small delta is about $\delta^2 / 2$? (Either
# answer is for rounding errors that are small and as good as random.)
#
# 4 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "error_factor", "locked": false, "schema_version": 3, "solution": true, "task": false}
def error_factor(coarse: int, fine: int) -> tuple[float, float]:
    """Error of a token, and K3, coarse over fine: two factors."""
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab03-error_factor
    bits = fine - coarse
    return 2.0**bits, 4.0**bits
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "error_factor_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("error_factor", error_factor)

# %% nbgrader={"grade": true, "grade_id": "error_factor_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("error_factor", error_factor, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab03-error_factor-hidden
from tinyrl.course import check as _check

_check("error_factor", error_factor, seed=5470)
### END HIDDEN TESTS

# %% [markdown]
# ## 11. Open question: which format for RL?
#
# 10 minutes, 4 points, read by a person. If you study alone: write yours, then
# `solution("lab03")` shows an answer, and what a marker looks for.

# %% [markdown] nbgrader={"grade": false, "grade_id": "open_rubric", "locked": true, "points": 0, "schema_version": 3, "solution": false, "task": true}
# A team samples in BF16 and trains in BF16, with two engines. Mean |delta| is
# 0.004 and K3 1.6e-5 per token; responses have 4,000 tokens. One colleague
# wants FP16 on both sides ("three more bits"), a second FP16 in the sampler
# only ("it is the finer one"), a third leaves everything as it is ("both are
# BF16, so they match").
#
# In at most 200 words: what would FP16 on both sides do to mean |delta| and to
# K3 (two numbers), and which risk does it bring into training, with which
# remedy? What is wrong with the second proposal? What is wrong with the third
# one's argument? What would you measure before deciding?
#
# One point for each of the four questions.
#
# === BEGIN MARK SCHEME ===
# canary: TINYRL-CANARY-lab03-open-scheme
#
# 1. Ten mantissa bits instead of seven: about 8 times less, mean |delta| near
#    0.0005, and 64 times less in K3, near 2.5e-7. The risk is range: gradients
#    below 2^-25 are flushed and activations above 65504 overflow; remedy: loss
#    scaling (dynamic, a step with an inf is skipped), FP32 master weights. Both
#    numbers, the risk and the remedy are needed.
# 2. Mixed formats: the error is that of the coarser side, 0.004 or so as
#    before; nothing is gained. What counts is that both sides round alike.
# 3. The same dtype is not the same numerics: other kernels, other order, other
#    places where results are rounded give other numbers; their own 0.004 shows
#    it. Zero needs equal kernels with a fixed order on both sides.
# 4. Something that could change the decision: delta and K3 with FP16 on their
#    own stack, on a few thousand tokens; the share of flushed and infinite
#    gradients at the scale; reward over several seeds. "Try it and look at the
#    loss" does not count. No promise that the reward improves: on a small model
#    it was not seen to.
# === END MARK SCHEME ===

# %% [markdown] nbgrader={"grade": true, "grade_id": "open_answer", "locked": false, "points": 4, "schema_version": 3, "solution": true, "task": false}
# ### BEGIN SOLUTION
# canary: TINYRL-CANARY-lab03-open-answer
#
# FP16 has ten mantissa bits where BF16 has seven, so every rounding error is
# about 8 times smaller: mean |delta| near 0.0005, and K3, which goes with the
# square, near 2.5e-7. The price is range. Gradients below 2^-25 become 0 and
# anything above 65504 is infinite, so the loss has to be scaled, dynamically,
# with FP32 master weights. FP16 in the sampler alone gains nothing: delta is the
# difference of two roundings, and the coarser one, BF16, decides its size. And
# that both are called BF16 does not make them match: two engines add in another
# order and round at other places; the 0.004 they have measured is the proof.
# Only the same kernels with a fixed order give 0. Before deciding I would score
# a few thousand tokens with FP16 on their stack and compare delta and K3, count
# flushed and infinite gradients at the loss scale, and only then compare reward
# over several seeds, without expecting that it moves.
# ### END SOLUTION

# %% [markdown]
# You are done. `progress()` shows what is left; notebook 03 measures the same
# things on a model that samples.
