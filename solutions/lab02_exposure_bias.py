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
# # Lab 02: exposure bias
#
# A model is taught after right prefixes and used after its own. In this lab you
# write what it is taught (teacher forcing, scheduled sampling, DAgger, and the
# loss mask of a conversation) and the numbers that tell a model which errs more
# after its own mistakes from one whose mistakes only propagate.
# 67 minutes, 25 points, eight exercises of 1 to 8 lines and one open
# question.
#
# **How it works.** Write your code over `raise NotImplementedError()`, run the
# cell, then run the locked test cell under it: it checks your function at once
# and names the mistake. A second locked cell runs it on inputs you do not see.
# `hint("hazard")` gives the next of three hints, `solution("hazard")` one
# right answer once you have had a try checked, `progress()` how far you are.
# If a test says `NameError`, run the cell above it first. After a `SyntaxError`
# it still judges your last version that ran.
# `set_language("zh")` 之后，检查结果和提示都用中文显示。
#
# **The arrays.** Answers are `[B, T]`: B rows, T places, padded on the right.
# `length [B]` says how many tokens of a row are real, at least one; the longest
# row fills all T. **Padding holds garbage**: stale ids, stale errors. `said` is
# what the model sampled at a place, `right` (or `gold`) the token of the right
# answer there, `expert` the right continuation of what the model had *read*. Ids
# are whole numbers, and 0 is one like any other. Never write into your arguments.

# %% nbgrader={"grade": false, "grade_id": "setup", "locked": true, "schema_version": 3, "solution": false, "task": false}
import torch
from torch import Tensor

from tinyrl.course import check, hint, progress, set_language, solution

# %% [markdown]
# Three digits to add up, modulo 10, and two ways to go wrong; they are there to
# try your functions on. Guess before you go on: how many mistakes did each of the
# two answers make?

# %% nbgrader={"grade": false, "grade_id": "by_hand", "locked": true, "schema_version": 3, "solution": false, "task": false}
by_hand_digits = torch.tensor([[3, 1, 4, 2], [3, 1, 4, 2]])
by_hand_right = torch.tensor([[3, 4, 8, 0], [3, 4, 8, 0]])
by_hand_said = torch.tensor([[4, 5, 9, 1], [4, 7, 3, 8]])

# %% [markdown]
# ## 1. Teacher forcing · Teacher forcing
#
# One sequence holds a prompt and its answer. Column t of the inputs predicts
# column t + 1 of `ids`, so all predictions are made in one pass, each after the
# right tokens. Return
#
# 1. `inputs [B, S - 1]`: what the model reads,
# 2. `targets [B, S - 1]`: what each column is asked for, or -100 where nothing
#    is asked (`cross_entropy` leaves -100 out): only tokens of the answer count.
#
# Row b has `prompt[b]` tokens of prompt, at least one, and `length[b]` real
# tokens in all; the rest is padding.
#
# 7 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "shift_targets", "locked": false, "schema_version": 3, "solution": true, "task": false}
def shift_targets(
    ids: Tensor, prompt: Tensor, length: Tensor
) -> tuple[Tensor, Tensor]:
    """What is read and what is asked for; -100 asks for nothing.

    ids [B, S], prompt [B], length [B]
    ->  whole numbers [B, S - 1], [B, S - 1]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab02-shift_targets
    t = torch.arange(1, ids.shape[1])  # places of the targets
    answer = (t >= prompt[:, None]) & (t < length[:, None])
    return ids[:, :-1], torch.where(answer, ids[:, 1:], -100)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "shift_targets_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("shift_targets", shift_targets)

# %% nbgrader={"grade": true, "grade_id": "shift_targets_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("shift_targets", shift_targets, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab02-shift_targets-hidden
from tinyrl.course import check as _check

_check("shift_targets", shift_targets, seed=2113)
### END HIDDEN TESTS

# %% [markdown]
# ## 2. Errors by place · 按位置统计错误
#
# The first thing that everybody plots: at each place, the share of answers whose
# token is not the right one. Only answers that are still going on count. Under
# teacher forcing such a curve is flat, free running it rises. (Try it on the
# answers from above, with lengths of 4.)
#
# 6 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "wrong_by_place", "locked": false, "schema_version": 3, "solution": true, "task": false}
def wrong_by_place(said: Tensor, right: Tensor, length: Tensor) -> Tensor:
    """Share of the real tokens of each place that are wrong.

    said, right [B, T], length [B]  ->  [T]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab02-wrong_by_place
    wrong = said != right
    real = torch.arange(wrong.shape[1]) < length[:, None]
    return (wrong & real).sum(0) / real.sum(0)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "wrong_by_place_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("wrong_by_place", wrong_by_place)

# %% nbgrader={"grade": true, "grade_id": "wrong_by_place_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("wrong_by_place", wrong_by_place, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab02-wrong_by_place-hidden
from tinyrl.course import check as _check

_check("wrong_by_place", wrong_by_place, seed=2166)
### END HIDDEN TESTS

# %% [markdown]
# ## 3. The hazard · 风险率
#
# Does the model get *worse*, or do its mistakes merely stay? Count only first
# mistakes. An answer is **at risk** at place t if it has not ended and no token
# before t was wrong. The hazard is the share of the answers at risk whose token
# at t is wrong. An answer that ends rightly leaves the risk set without having
# erred; statisticians call it censored.
#
# `wrong [B, T]` is true where a token is wrong, and garbage in the padding. At
# each place some answer is at risk.
#
# 8 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "hazard", "locked": false, "schema_version": 3, "solution": true, "task": false}
def hazard(wrong: Tensor, length: Tensor) -> Tensor:
    """Of the answers right so far, the share that goes wrong at each place.

    wrong bool [B, T], length [B]  ->  [T]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab02-hazard
    real = torch.arange(wrong.shape[1]) < length[:, None]
    before = wrong.cumsum(1) - wrong.long() > 0
    at_risk = real & ~before
    return (wrong & at_risk).sum(0) / at_risk.sum(0)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "hazard_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check; _check("hazard", hazard)

# %% nbgrader={"grade": true, "grade_id": "hazard_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("hazard", hazard, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab02-hazard-hidden
from tinyrl.course import check as _check

_check("hazard", hazard, seed=2219)
### END HIDDEN TESTS

# %% [markdown]
# ## 4. What a hazard adds up to · 风险率的累积
#
# If one mistake spoils all that follows, what share of answers is spoiled by
# place t (included), given the hazard of each place? For a constant hazard h the
# result is $1 - (1 - h)^t$: a curve that rises although no step is worse than
# any other. All hazards are below 1.
#
# 5 minutes, 2 points.

# %% nbgrader={"grade": false, "grade_id": "free_running_error", "locked": false, "schema_version": 3, "solution": true, "task": false}
def free_running_error(hazard: Tensor) -> Tensor:
    """Share of answers with a mistake by each place.

    hazard [T]  ->  [T]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab02-free_running_error
    return 1 - (1 - hazard).cumprod(0)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "free_running_error_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("free_running_error", free_running_error)

# %% nbgrader={"grade": true, "grade_id": "free_running_error_hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 point: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("free_running_error", free_running_error, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab02-free_running_error-hidden
from tinyrl.course import check as _check

_check("free_running_error", free_running_error, seed=2272)
### END HIDDEN TESTS

# %% [markdown]
# ## 5. Local errors, on and off the road · 路上与路外的局部错误率
#
# The measurement that finds exposure bias. Judge each token by the expert, who
# knows what the model had read, so that a mistake counts once. Then split the
# real tokens: `off[b, t]` is true where what was read *before* place t is a
# state that training never showed. Return
#
# 1. the share of wrong tokens among those on the road,
# 2. the same among those off it.
#
# There are real tokens of both kinds. Equal shares: mistakes only propagate.
#
# 7 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "local_error_split", "locked": false, "schema_version": 3, "solution": true, "task": false}
def local_error_split(
    said: Tensor, expert: Tensor, off: Tensor, length: Tensor
) -> tuple[Tensor, Tensor]:
    """Shares of tokens that are not the expert's, on the road and off it.

    said, expert [B, T], off bool [B, T], length [B]  ->  two scalars []
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab02-local_error_split
    wrong = (said != expert).float()
    real = torch.arange(wrong.shape[1]) < length[:, None]
    return wrong[real & ~off].mean(), wrong[real & off].mean()
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "local_error_split_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("local_error_split", local_error_split)

# %% nbgrader={"grade": true, "grade_id": "local_error_split_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("local_error_split", local_error_split, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab02-local_error_split-hidden
from tinyrl.course import check as _check

_check("local_error_split", local_error_split, seed=2325)
### END HIDDEN TESTS

# %% [markdown]
# ## 6. Scheduled sampling · 计划采样
#
# Scheduled sampling (arXiv 1506.03099) tosses a coin for each token: where
# `coin[b, t] < own` the token at place t is the model's own, `said[b, t]`, else
# it is `gold[b, t]`. The *next* place reads it. Return what each place reads;
# place 0 reads `start`.
#
# (Here `said` is given. In training it is sampled on the way, or, cheaper, taken
# from one parallel pass.)
#
# 8 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "scheduled_inputs", "locked": false, "schema_version": 3, "solution": true, "task": false}
def scheduled_inputs(
    gold: Tensor, said: Tensor, coin: Tensor, own: float, start: int
) -> Tensor:
    """What each place reads: own tokens where coin < own, gold elsewhere.

    gold, said [B, T], coin [B, T] in [0, 1)  ->  whole numbers [B, T]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab02-scheduled_inputs
    mixed = torch.where(coin < own, said, gold)
    return torch.nn.functional.pad(mixed[:, :-1], (1, 0), value=start)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "scheduled_inputs_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("scheduled_inputs", scheduled_inputs)

# %% nbgrader={"grade": true, "grade_id": "scheduled_inputs_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("scheduled_inputs", scheduled_inputs, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab02-scheduled_inputs-hidden
from tinyrl.course import check as _check

_check("scheduled_inputs", scheduled_inputs, seed=2378)
### END HIDDEN TESTS

# %% [markdown]
# ## 7. DAgger's labels · DAgger 的标签
#
# DAgger (arXiv 1011.0686) lets the model drive and asks an expert what to do in
# the states that it reached. The task is running totals modulo 10:
# `digits[b, t]` is the digit that step t adds, `read[b, t]` the total that was
# read at place t, right or wrong, which step t + 1 starts from; step 0 starts
# from 0. Return the total that the expert says at each place. Try it on
# the answers from above, with what was said as what was read, and count where the
# two differ: were you right?
#
# 7 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "expert_targets", "locked": false, "schema_version": 3, "solution": true, "task": false}
def expert_targets(digits: Tensor, read: Tensor) -> Tensor:
    """The right next total at each place, given the total read before it.

    digits, read [B, n], both 0 .. 9  ->  whole numbers [B, n]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab02-expert_targets
    before = torch.nn.functional.pad(read[:, :-1], (1, 0))
    return (before + digits) % 10
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "expert_targets_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("expert_targets", expert_targets)

# %% nbgrader={"grade": true, "grade_id": "expert_targets_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("expert_targets", expert_targets, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab02-expert_targets-hidden
from tinyrl.course import check as _check

_check("expert_targets", expert_targets, seed=2431)
### END HIDDEN TESTS

# %% [markdown]
# ## 8. The loss mask of a conversation · 多轮对话的 loss mask
#
# In a conversation the model's earlier answers are part of what it reads, and
# all of them were generated. Return a mask that is true on every token that the
# assistant said: after a marker `assistant`, up to and including the next
# `end`. All else is false: markers, users, the system, padding, and what a
# template writes between turns, a line break for one. All roles end their turns
# with `end`; each answer has an `end` unless the row was cut there. Templates
# differ: what an id means only `assistant` and `end` say, and padding may have
# the id `end`.
#
# 9 minutes, 3 points.

# %% nbgrader={"grade": false, "grade_id": "history_loss_mask", "locked": false, "schema_version": 3, "solution": true, "task": false}
def history_loss_mask(ids: Tensor, assistant: int, end: int) -> Tensor:
    """True on the assistant's own tokens, its end tokens included.

    ids [B, S]  ->  boolean [B, S]
    """
    ### BEGIN SOLUTION
    # canary: TINYRL-CANARY-lab02-history_loss_mask
    asked = torch.zeros_like(ids, dtype=torch.bool)
    speaking = torch.zeros(len(ids), dtype=torch.bool)
    for t in range(ids.shape[1]):
        asked[:, t] = speaking
        goes_on = speaking & (ids[:, t] != end)
        speaking = goes_on | (ids[:, t] == assistant)
    return asked
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "history_loss_mask_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from tinyrl.course import check as _check

_check("history_loss_mask", history_loss_mask)

# %% nbgrader={"grade": true, "grade_id": "history_loss_mask_hidden", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2 points: on other inputs; when it is graded, on some that are not shown.
from tinyrl.course import check as _check

_check("history_loss_mask", history_loss_mask, seed=1)
### BEGIN HIDDEN TESTS
# canary: TINYRL-CANARY-lab02-history_loss_mask-hidden
from tinyrl.course import check as _check

_check("history_loss_mask", history_loss_mask, seed=2484)
### END HIDDEN TESTS

# %% [markdown]
# ## 9. Open question: an assistant that gets lost
#
# 10 minutes, 4 points, read by a person. If you study alone: write yours, then
# `solution("lab02")` shows an answer, and what a marker looks for.

# %% [markdown] nbgrader={"grade": false, "grade_id": "open_rubric", "locked": true, "points": 0, "schema_version": 3, "solution": false, "task": true}
# A team fine-tunes an assistant on clean conversations. In use, 2 % of its first
# turns hold a mistake, and of its tenth turns 18 %. "Exposure bias," says one,
# "train with scheduled sampling." "Our trainer rebuilds the conversations from
# the database with the corrected answers," says another, "and the logprobs of
# late turns differ from the engine's by whole nats. The engine is broken."
#
# In at most 200 words: what share of tenth turns would be spoiled if each turn
# erred with probability 2 %, whatever came before, and one mistake spoiled the
# rest (give the number); what follows? Which measurement would show exposure
# bias? Why may scheduled sampling harm, and what would DAgger ask for instead?
# What makes the late logprobs differ, and how do you find out?
#
# One point for each of the four questions.
#
# === BEGIN MARK SCHEME ===
# canary: TINYRL-CANARY-lab02-open-scheme
#
# 1. 1 - 0.98^10 = 18.3 % (18 to 18.5 counts). A constant hazard explains the
#    rise, so the curve is no evidence of exposure bias. (Half a point for the
#    number alone.)
# 2. Local errors: each turn judged by an expert given the history that the model
#    really had, split into histories like those of training and others. Exposure
#    bias is a higher rate after its own mistakes.
# 3. Scheduled sampling asks for the gold token after a prefix that it does not
#    continue: input and target are inconsistent, the model hedges, also where it
#    was right. DAgger asks the expert for the right continuation of the prefix
#    that was read.
# 4. Trainer and engine read other histories: corrected against served answers.
#    From the first corrected turn on the prompt differs, so delta is no matter
#    of the engine. Compare ids before logprobs; score the served ids, and delta
#    falls to rounding.
# === END MARK SCHEME ===

# %% [markdown] nbgrader={"grade": true, "grade_id": "open_answer", "locked": false, "points": 4, "schema_version": 3, "solution": true, "task": false}
# ### BEGIN SOLUTION
# canary: TINYRL-CANARY-lab02-open-answer
#
# With a constant 2 % a turn, 1 - 0.98^10 = 18.3 % of tenth turns are spoiled:
# just what is seen. The rising curve is propagation, and nothing yet says
# that the model is worse after its own mistakes. To see that, an expert
# would have to judge each turn given the history that the model had, and I
# would compare the error rate after clean histories with that after
# mistaken ones. Only if the second is higher is there a bias to repair.
# Scheduled sampling would feed the model's own mistakes but still ask for the
# gold answer, which does not continue them; the best response to such a
# target is to hedge, and that costs where nothing was wrong. DAgger asks the
# expert what to say after the mistaken history. The late logprobs differ
# since the trainer conditions on corrected answers and the engine on those
# that it served: other prompts, other probabilities. Compare the ids turn by
# turn; they part before the logprobs do. Scored on the served ids, delta
# should be rounding.
# ### END SOLUTION

# %% [markdown]
# You are done. `progress()` shows what is left; notebook 02 shows the same
# numbers on models that are trained while you watch.
