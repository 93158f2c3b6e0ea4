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
# # Lab 05: templates, masks, positions
#
# A logprob is the answer to a question: these tokens, after those, at these
# positions, seeing this much. In this lab you write what makes the question the
# same on both sides, ids, masks, positions, visibility, and what decides which
# answers count in a loss.
# 67 minutes, 25 points, eight exercises of 2 to 6 lines and one open
# question.
#
# **How it works.** Write your code over `raise NotImplementedError()`, run the
# cell, then run the locked test cell under it: it checks your function at once
# and names the mistake. A second locked cell runs it on inputs you do not see.
# `hint("end_mask")` gives the next of three hints, `solution("end_mask")` one
# right answer once you have had a try checked, `progress()` how far you are.
# If a test says `NameError`, run the cell above it first. After a `SyntaxError`
# it still judges your last version that ran.
# `set_language("zh")` 之后，检查结果和提示都用中文显示。
#
# **The arrays.** B sequences of L columns, or responses of T columns; R
# packed rows; V words. Ids are whole numbers, and 0 is one like any other. A
# response `mask [B, T]` is true on real tokens, right-padded, and every row has
# some; other masks are named and explained where they come. **Padding holds
# garbage**: other ids, or NaN. Do not write into your arguments.

# %% nbgrader={"grade": false, "grade_id": "setup", "locked": true, "schema_version": 3, "solution": false, "task": false}
import torch
from torch import Tensor

from tinyrl.course import check, hint, progress, set_language, solution

# %% [markdown]
# Two sides of one small conversation, to try your functions on. Guess before
# you go on: where do they part, and how many of the tokens after that place
# are at another position than on the other side?

# %% nbgrader={"grade": false, "grade_id": "by_hand", "locked": true, "schema_version": 3, "solution": false, "task": false}
by_hand_rollout = torch.tensor([1, 4, 9, 7, 2, 5])
by_hand_trainer = torch.tensor([1, 1, 4, 9, 7, 2, 5])

# %% [markdown]
# ## 1. Where two lists of ids part · 两串 id 从哪里分开
#
# Before any two logprobs are compared: are they of the same tokens? `a` and
# `b` are the ids of one conversation on the two sides, not always equally
# long. Return the first place at which they differ. Where one list is the
# start of the other, that is the place at which the shorter one ends; where
# they are the same, return -1.
#
# The example is a `<bos>` that one side wrote twice.
#
# 6 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "first_difference", "locked": false, "schema_version": 3, "solution": true, "task": false}
def first_difference(a: Tensor, b: Tensor) -> int:
    """The first place at which two lists of ids differ; -1 if there is none.

    a [m], b [n]  ->  a whole number, a place in 0 .. min(m, n), or -1
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab05-first_difference
    n = min(len(a), len(b))
    places = (a[:n] != b[:n]).nonzero()
    if len(places):
        return int(places[0])
    return -1 if len(a) == len(b) else n
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "first_difference_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("first_difference", first_difference)

# %% nbgrader={"grade": true, "grade_id": "first_difference_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("first_difference", first_difference, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab05-first_difference-hidden
from tinyrl.course import check as _check

_check("first_difference", first_difference, seed=5713)
### END HIDDEN TESTS

# %% [markdown]
# ## 2. Where a response ends · 回答到哪里为止
#
# A response counts up to and including its end. Many models end a turn with
# one of *several* ids, `ends`; the first that comes ends it. A response
# without any was cut off, and all of its tokens count. What lies after an
# end is padding or old text, and padding may have the id of an end.
#
# 7 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "end_mask", "locked": false, "schema_version": 3, "solution": true, "task": false}
def end_mask(ids: Tensor, ends: Tensor) -> Tensor:
    """True up to and including the first of the end ids.

    ids [B, T], ends [E], E >= 1  ->  boolean [B, T]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab05-end_mask
    is_end = torch.isin(ids, ends).long()
    ends_before = is_end.cumsum(1) - is_end
    return ends_before == 0
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "end_mask_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("end_mask", end_mask)

# %% nbgrader={"grade": true, "grade_id": "end_mask_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("end_mask", end_mask, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab05-end_mask-hidden
from tinyrl.course import check as _check

_check("end_mask", end_mask, seed=5766)
### END HIDDEN TESTS

# %% [markdown]
# ## 3. Position ids from the mask · 由 mask 得到位置编号
#
# A batch holds padding on the left, on the right, or on both sides.
# `attention` is true on real tokens, which stand together. Tell each real
# token its place among the real tokens of its row, from 0; tell padding 0,
# whichever side it is on. (Learned positions are a table: there is no row -1,
# and none after the last.)
#
# 6 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "position_ids", "locked": false, "schema_version": 3, "solution": true, "task": false}
def position_ids(attention: Tensor) -> Tensor:
    """The place of each real token in its own row; 0 on padding.

    attention, boolean [B, L]  ->  whole numbers [B, L]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab05-position_ids
    places = attention.long().cumsum(1) - 1
    return torch.where(attention, places, 0)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "position_ids_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("position_ids", position_ids)

# %% nbgrader={"grade": true, "grade_id": "position_ids_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("position_ids", position_ids, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab05-position_ids-hidden
from tinyrl.course import check as _check

_check("position_ids", position_ids, seed=5819)
### END HIDDEN TESTS

# %% [markdown]
# ## 4. Who sees whom in a packed row · 打包之后谁能看到谁
#
# A row holds several conversations, one after the other. `segments` says to
# which a token belongs; -1 is padding, a segment like any other, so that
# every query sees a key. `visible[r, i, j]` is true where query i of row r
# may look at key j: not after it, and of the same segment.
#
# 7 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "packed_visible", "locked": false, "schema_version": 3, "solution": true, "task": false}
def packed_visible(segments: Tensor) -> Tensor:
    """Causal attention inside each conversation of a row.

    segments [R, L]  ->  boolean [R, L, L]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab05-packed_visible
    L = segments.shape[1]
    same = segments[:, :, None] == segments[:, None, :]
    return same & torch.ones(L, L).tril().bool()
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "packed_visible_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("packed_visible", packed_visible)

# %% nbgrader={"grade": true, "grade_id": "packed_visible_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("packed_visible", packed_visible, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab05-packed_visible-hidden
from tinyrl.course import check as _check

_check("packed_visible", packed_visible, seed=5872)
### END HIDDEN TESTS

# %% [markdown]
# ## 5. Logprobs of a padded batch · 有填充的 batch 的 logprob
#
# `logits[b, c]` is what the model says of the token that *follows* column c.
# `response` is true on response tokens; each row begins with a prompt token or
# padding. Return the logprob of each response token in the column of the token
# itself, and 0 in all other columns:
#
# $$\text{logp}[b, c] = \log \operatorname{softmax}(\text{logits}[b, c - 1])
# [\text{ids}[b, c]].$$
#
# Padding may have the id -100, as labels have in many trainers, and logits
# that are NaN; the gradient has to be finite all the same. Logits can lie far
# apart.
#
# 10 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "padded_logp", "locked": false, "schema_version": 3, "solution": true, "task": false}
def padded_logp(logits: Tensor, ids: Tensor, response: Tensor) -> Tensor:
    """Logprob of each response token in its own column, 0 elsewhere.

    logits [B, L, V], ids [B, L], response, boolean [B, L]  ->  [B, L]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab05-padded_logp
    row, column = response.nonzero(as_tuple=True)
    logp = logits[row, column - 1].log_softmax(1)  # no NaN gets this far
    logp = logp.gather(1, ids[row, column][:, None])[:, 0]
    return logits.new_zeros(ids.shape).index_put((row, column), logp)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "padded_logp_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("padded_logp", padded_logp)

# %% nbgrader={"grade": true, "grade_id": "padded_logp_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("padded_logp", padded_logp, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab05-padded_logp-hidden
from tinyrl.course import check as _check

_check("padded_logp", padded_logp, seed=5925)
### END HIDDEN TESTS

# %% [markdown]
# ## 6. The loss of what was kept · 只对保留部分求损失
#
# Responses that hit the length limit are left out of the loss: `cut` is true
# on them. Return the mean of `loss` over the real tokens of the others, every
# token with the same weight, also one whose loss is 0. The same tokens stand
# in the numerator and in the denominator. Where all responses were cut, the
# loss is 0, and a tensor as ever: training calls `.backward()` on it.
#
# 7 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "kept_loss", "locked": false, "schema_version": 3, "solution": true, "task": false}
def kept_loss(loss: Tensor, mask: Tensor, cut: Tensor) -> Tensor:
    """Mean over the real tokens of responses that were not cut.

    loss [B, T], mask, boolean [B, T], cut, boolean [B]  ->  scalar []
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab05-kept_loss
    kept = mask & ~cut[:, None]
    total = torch.where(kept, loss, 0.0).sum()
    return total / kept.sum().clamp(min=1)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "kept_loss_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("kept_loss", kept_loss)

# %% nbgrader={"grade": true, "grade_id": "kept_loss_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("kept_loss", kept_loss, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab05-kept_loss-hidden
from tinyrl.course import check as _check

_check("kept_loss", kept_loss, seed=5978)
### END HIDDEN TESTS

# %% [markdown]
# ## 7. Reward and mask in step · 奖励与 mask 同步
#
# The trainer keeps at most `limit` columns: L = min(T, limit). `reward[b]`
# was given for a whole response. Return per-token rewards `[B, L]` and the
# mask `[B, L]`. The reward stands on the last real token of its response and
# nowhere else. A response with more than `limit` tokens was cut, and what is
# left of it earned nothing; its tokens still count.
#
# 8 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "reward_in_step", "locked": false, "schema_version": 3, "solution": true, "task": false}
def reward_in_step(
    reward: Tensor, mask: Tensor, limit: int
) -> tuple[Tensor, Tensor]:
    """The reward on each last token, none for cut responses; the cut mask.

    reward [B], mask, boolean [B, T], limit >= 1
    ->  [B, L], boolean [B, L] with L = min(T, limit)
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab05-reward_in_step
    kept = mask[:, :limit]
    last = torch.arange(kept.shape[1]) == (mask.sum(1) - 1)[:, None]
    return torch.where(last, reward[:, None], 0.0), kept
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "reward_in_step_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("reward_in_step", reward_in_step)

# %% nbgrader={"grade": true, "grade_id": "reward_in_step_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("reward_in_step", reward_in_step, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab05-reward_in_step-hidden
from tinyrl.course import check as _check

_check("reward_in_step", reward_in_step, seed=6031)
### END HIDDEN TESTS

# %% [markdown]
# ## 8. K3 with and without padding · 计入与不计 padding 的 K3
#
# An engine fills its buffer with 0.0, which as a logprob says *certain* (a real
# token can have it); the trainer's number for a padding token is whatever. With
# $\Delta = \log \pi_{\text{train}} - \log \pi_{\text{rollout}}$, K3 of a
# token is $e^\Delta - 1 - \Delta$. Return its mean over real tokens, and what
# a metric without a mask would show: its mean over all columns. Padding holds
# finite numbers here.
#
# 6 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "k3_with_padding", "locked": false, "schema_version": 3, "solution": true, "task": false}
def k3_with_padding(
    logp_train: Tensor, logp_rollout: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Mean K3 of the real tokens, and of all columns.

    logp_train, logp_rollout [B, T], mask, boolean [B, T]  ->  two scalars []
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab05-k3_with_padding
    d = logp_train.double() - logp_rollout.double()
    k3 = torch.expm1(d) - d
    return k3[mask].mean(), k3.mean()
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "k3_with_padding_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("k3_with_padding", k3_with_padding)

# %% nbgrader={"grade": true, "grade_id": "k3_with_padding_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("k3_with_padding", k3_with_padding, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab05-k3_with_padding-hidden
from tinyrl.course import check as _check

_check("k3_with_padding", k3_with_padding, seed=6084)
### END HIDDEN TESTS

# %% [markdown]
# ## 9. Open question: a run that gets longer and longer
#
# 10 minutes, 4 points, read by a person. If you study alone: write yours, then
# `solution("lab05")` shows an answer, and what a marker looks for.

# %% [markdown] nbgrader={"grade": false, "grade_id": "open_rubric", "locked": true, "points": 0, "schema_version": 3, "solution": false, "task": true}
# A team runs GRPO on a chat model. Rollout and trainer agree on every logprob
# to 1e-6. Still: 96 % of responses count as cut off, at a limit of 2,000
# tokens and again at 4,000; those that end early earn least; mean length
# grows at every step. The tokenizer has `pad_token = eos_token`, and the
# model's configuration lists two end ids. "The deltas are zero," they say,
# "so it is not a mismatch."
#
# In at most 200 words: why can all deltas be zero although something is
# wrong, and which inputs would you compare? What does a second end id
# explain, and which number shows it at once? What does `pad = eos` do if the
# loss mask is made from ids, and how should it be made? Of 512 responses of
# 4,000 columns a trainer divides by all columns where 1,024,000 tokens are
# real: what does that do to the gradient, to a step of SGD and to one of Adam,
# and why does it not explain the growing length?
#
# One point for each of the four questions.
#
# === BEGIN MARK SCHEME ===
# canary: TINYRL-CANARY-lab05-open-scheme
#
# 1. A mask, a denominator or a reward acts in the loss and leaves logprobs
#    alone; deltas compare numbers, not which of them count. Compare ids
#    (their last ones too), attention masks, positions, loss mask and the rows
#    of the rewards.
# 2. The trainer waits for one id, the model ends with the other: nearly every
#    response seems cut off, at any limit, and what comes after it counts. The
#    share of responses whose last real id is the second end id shows it.
#    (Half a point without a number to look at.)
# 3. The real end has the id of padding and leaves the loss, so stopping is
#    never trained (or rewarded). The mask has to be made from lengths, up to
#    and including the first end.
# 4. 512 * 4,000 = 2,048,000 columns, so the gradient is 1,024,000 / 2,048,000
#    = half as long. SGD's step halves; Adam divides by the gradient's own size
#    and steps nearly as before, so it is no smaller learning rate there (but
#    clipping by norm and the weight against a term with another denominator
#    change). One factor for all tokens moves no direction and prefers no
#    length. (Half a point for the number alone, or for "half the learning
#    rate" without a word on the optimiser.)
# === END MARK SCHEME ===

# %% [markdown] nbgrader={"grade": true, "grade_id": "open_answer", "locked": false, "points": 4, "schema_version": 3, "solution": true, "task": false}
# ### BEGIN SOLUTION
# canary: TINYRL-CANARY-lab05-open-answer
#
# A delta compares two numbers for one token. Whether the token counts, by
# what it is divided and which reward it gets are decided afterwards, in the
# loss, and can be wrong with every delta at zero. I compare the inputs: ids
# with their last ones, attention mask, positions, loss mask, and that row b
# of the rewards belongs to row b of the ids. Two end ids: the engine stops at
# either, the trainer knows one and sees responses that never end, whatever
# the limit; I count how many have the other id as their last real token. With
# pad = eos and a mask made from ids the real end is masked together with the
# padding, so nothing ever teaches the policy to stop; the mask has to come
# from lengths, end included. Dividing by 512 * 4,000 = 2,048,000 columns
# instead of 1,024,000 halves the gradient. SGD steps half as far; Adam scales
# the factor away, and only norm clipping and a KL term with another
# denominator notice. It is one factor for all tokens, so it favours neither
# long responses nor short ones; the two faults about the end do.
# ### END SOLUTION

# %% [markdown]
# You are done. `progress()` shows what is left; notebook 05 shows the same
# faults through a real template, tokenizer and collator.
