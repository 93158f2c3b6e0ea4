# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Start here
#
# > **A model passes every check that its training knows. Can the model which your users
# > talk to be another one?**
#
# It can, with the same weights. This notebook makes sure that your machine is ready, shows
# the way through the course, and then shows it happen six times in small: three times to a
# plain classifier, three times to a language model that learns by RL.
#
# Run the cells from top to bottom with Shift+Enter. Where a cell asks for a prediction,
# commit to one before you go on: being wrong on record is what makes the answer stick.
# It takes about half an hour to read and well under a minute to compute.
#
# *If the next cell says `ModuleNotFoundError`, the notebook runs in another Python: close
# JupyterLab and start it with `make lab`.*

# %% tags=["anchor:environment"]
from tinyrl.course import environment

environment.survey()

# %% [markdown]
# ## The course
#
# Thirteen notebooks; each has one question, and most have a lab that is graded at once.
# The table knows what you have done. Lessons that it calls *opens later* come with a later
# release. (It can speak Chinese, as can the checks of the labs:
# `from tinyrl.course import set_language`, then `set_language("zh")`.)
#
# Beside the lessons lies [the atlas](atlas.ipynb): every field of an engine changed alone,
# with its numbers and its fingerprint. Look things up there.

# %% tags=["anchor:course-map"]
from tinyrl.course.outline import course_map

course_map()

# %% [markdown] tags=["anchor:four-layers"]
# ## What it is, in four layers
#
# The subject is called **training-inference mismatch**. Asked what that is, answer in four
# layers, always in this order: what it is, where it comes from, what it does, what to do.
#
# | layer | what to say |
# |---|---|
# | **Definition** | Training optimises one distribution along one path of computation; what is served draws from another distribution along another path. In RL the sharp form: the policy that sampled a token and the policy that is trained give that token different probabilities. |
# | **Sources** | Data; decoding; number formats; kernels and caches; templates, masks and positions; routers of a mixture of experts; two engines, one for rollouts and one for training; weights that are not the same version. |
# | **Effect** | Logprobs, KL, ratios and with them the advantage-weighted update are wrong, so RL moves in a biased direction. And the served model is worse than the measured one. |
# | **Remedy** | Align the stack; recompute old logprobs in the trainer; watch the mismatch; weight what is left (importance sampling); make the method less touchy (GSPO's sequence ratio, R3's replayed routes); evaluate on the stack that serves. |
#
# An interviewer hears from the order that you can find your way in a real system. You will
# fill each line with numbers that you measured.

# %% [markdown] tags=["anchor:chain"]
# ## Why RL suffers most
#
# A supervised loss needs the training stack alone. RL needs two: something samples, and
# something trains on what was sampled, its logprobs, ratios, KL, rewards and advantages.
# So the chain is long, and every link can break:
#
# | link | what goes apart | lesson |
# |---|---|---|
# | 1 | what is optimised, and what is run | here |
# | 2 | the data: prompts in training, prompts in use | here, 02 |
# | 3 | decoding: temperature, top-p, penalties, stop words | 06 |
# | 4 | precision: FP32, BF16, FP8, INT4 | 03 |
# | 5 | the engines: kernels, caches, templates, positions, routers | 04, 05, 07 |
# | 6 | hence logprob, ratio and KL | 01, 10 |
# | 7 | hence the update, which is on-policy in name only | 08 |
# | 8 | and at the end the repairs: align, recompute, weight, GSPO, R3 | 09, 11 |
#
# Link 6 is the narrow place. If two engines give one token two probabilities, the ratio
# that scales its update is wrong, and so are direction and size of the step.

# %% [markdown] tags=["anchor:kinds"]
# ## Six kinds in the wide sense
#
# | in training | in use | seen in |
# |---|---|---|
# | the history is the correct one (teacher forcing) | the history is the model's own | 02 |
# | prompts from a data set | prompts from users | below |
# | one fixed prompt template | another, perhaps by one blank | 05 |
# | high precision | low or quantised | below, 03 |
# | one attention kernel | a faster one | 04 |
# | a training framework computes the logprob | an inference engine sampled the token | 01 |
#
# The last row is the one RL can't do without, and the course spends most of its time there.

# %% [markdown] tags=["anchor:why-common"]
# ## Why large models have it so often
#
# Nobody plans it. Serving is written for speed and training for gradients, so they are two
# programs by two teams: caches, fused kernels and 8-bit weights on one side, FP32 sums and
# whole sequences at once on the other. Each is right by its own tests. A large model adds
# length (a thousand tokens, a thousand chances to differ), money (half precision halves
# the bill) and moving parts: templates, tokenizers, samplers, parallel splits, versions.
# And nothing forces the two sides to be compared: that is a test you have to write.

# %% [markdown]
# ## First without any RL: one classifier, three servers
#
# Eight measurements of an order say whether it will be late. We train a network of two
# layers on orders, its features centred as usual, with dropout as usual. Then three teams
# put the very same weights into service:
#
# - **A** forgets `model.eval()`, so dropout stays on;
# - **B** reads the features from another table, where one of them isn't centred;
# - **C** quantises the weights to INT4 to save memory.

# %%
from copy import deepcopy

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from tinyrl.course import claim, style
from tinyrl.course.claims import seed
from tinyrl.course.predictions import predict, reveal
from tinyrl.formats import quantise

style.use()
torch.set_num_threads(1)  # small models: a second thread would only wait

# %%
servers = ["dropout left on", "one feature not centred", "INT4 weights"]
predict("00.servers", "Which server loses the most accuracy?", servers)


# %%
def orders(n, generator):
    """n orders: features [n, 8], centred, and 1 where an order was late [n]."""
    x = torch.randn(n, 8, generator=generator)
    w = torch.tensor([1.5, -2.0, 1.0, 0.5, 0.0, 0.0, 1.0, -1.0])
    late = x @ w + 2 * (2 * x[:, 0]).sin() * x[:, 1] > 0
    return x, late.long()


def train_classifier(generator, steps=300):
    """A trained network and its training losses. It is left in train mode."""

    def layer(inputs):
        return nn.Linear(inputs, 64), nn.ReLU(), nn.Dropout(0.5)

    net = nn.Sequential(*layer(8), *layer(64), nn.Linear(64, 2))
    adam, losses = torch.optim.Adam(net.parameters(), 3e-3), []
    for _ in range(steps):
        x, late = orders(256, generator)
        loss = cross_entropy(net(x), late)
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    return net, losses


# %% [markdown]
# Each server returns logits for the same orders. The trainer's own evaluation is the row
# that the others are compared with.


# %% tags=["anchor:dropout"]
def server_a(net, x):
    """Nobody called net.eval(): half of the units are dropped, at random."""
    return net.train()(x)


# %% tags=["anchor:feature-skew"]
def server_b(net, x):
    """The second feature has its mean of 1 still in it."""
    skewed = x.clone()
    skewed[:, 1] += 1
    return net.eval()(skewed)


# %% tags=["anchor:quantised-server"]
def server_c(net, x, fmt="int4"):
    """Each row of each weight matrix is kept in 4 bits and one scale."""
    small = deepcopy(net).eval()
    for p in small.parameters():
        if p.ndim == 2:
            p.data = quantise(p.data, fmt)
    return small(x)


# %%
@torch.no_grad()
def measure(net, x, late):
    """Accuracy and mean |delta| of the right answer: training, A, B, C."""
    trained = net.eval()(x)
    served = [server(net, x) for server in (server_a, server_b, server_c)]
    for logits in trained, *served:
        right = (logits.argmax(-1) == late).float()
        delta = trained.log_softmax(-1) - logits.log_softmax(-1)
        moved = delta.gather(1, late[:, None]).abs()
        yield right.mean().item(), moved.mean().item()


def one_run(run):
    """Train and serve once; the seed decides weights, dropout and orders."""
    with torch.random.fork_rng():  # nn.Dropout draws from torch's own generator
        torch.manual_seed(seed(run))
        generator = torch.Generator().manual_seed(seed(run))
        net, losses = train_classifier(generator)
        return losses, list(measure(net, *orders(4000, generator)))


losses, results = zip(*[one_run(run) for run in range(5)])
accuracy, moved = torch.tensor(results).unbind(-1)  # [5 runs, 4 servers]

# %%
fig, (curve, left, right) = plt.subplots(1, 3, width_ratios=[1, 1.5, 1.2])
curve.plot(losses[0], color=style.TRAIN)
style.label(curve, "Training loss", "step", "nats")
names = ["training", "A", "B", "C"]
right_answers = dict(zip(names, accuracy.mean(0).tolist()))
style.bars(left, right_answers, [style.TRAIN] + 3 * [style.ROLLOUT], ".3f")
style.label(left, "Accuracy: C loses next to nothing")
deltas = dict(zip(names, moved.mean(0).tolist()))
style.bars(right, deltas, style.ROLLOUT)
style.label(right, "Mean |delta|: C moved", y="nats")
plt.show()
lost = accuracy[:, :1] - accuracy[:, 1:]
reveal("00.servers", servers[lost.mean(0).argmax()])

# %% [markdown]
# One training curve belongs to all three servers, and it looks well. It is computed by the
# training stack, so it can't know what the servers do. (On the right, *delta* is what lies
# between training's logprob of the right answer and the server's.)
#
# Server C is the quiet one. Its accuracy is that of training, and yet it gives every order
# another probability: accuracy asks only which answer is the likelier, so a difference has
# to be large, or the case close, before it shows. A learner that *uses* the probability,
# as RL does in its ratio, sees the difference at once.
#
# The next cell is a **claim**. Every number that this text leans on is computed like
# that, and the notebook stops where one leaves its bounds. The *control* is the same
# number in a case where the statement should be false, here server A. It has to fall
# outside the bounds, or they would say nothing.

# %%
claim(
    "accuracy lost by C, INT4 weights",
    lost[:, 2].abs().tolist(),
    at_most=0.006,
    how="every",
    control=lost[:, 0].abs().tolist(),
)

# %% [markdown]
# ## Now a language model
#
# The course trains a GPT of 32 thousand weights on a task with a checkable answer: given
# twelve digits, say their running totals modulo ten. One wrong total spoils all later
# ones, so only a right chain earns the reward of 1. A version of it is shipped, taught
# by sloppy demonstrations; it is right about a third of the time, which leaves RL
# something to learn.
#
# A **stack**, `Stack()`, is everything besides weights and tokens that decides a logprob:
# number formats, kernels, positions, sampler. `generate` samples under one stack, `score`
# computes the logprobs of the same tokens under another, `compare` measures what lies
# between.

# %%
from tinyrl.advantages import group_advantages
from tinyrl.checkpoints import load
from tinyrl.metrics import compare
from tinyrl.objectives import LossView, grpo
from tinyrl.scoring import score
from tinyrl.stack import PRESETS, Stack, replace_at
from tinyrl.tasks import CumSum
from tinyrl.trainer import generate, pass_rate, rl

model, task, GROUP = load("sft"), CumSum(), 8


def noise(offset):
    return torch.Generator().manual_seed(seed(offset))


def two_sides(rollout_stack, train_stack, trained=model, task=task):
    """Sample under one stack, score under another: 32 prompts, 8 answers."""
    generator = noise(1)
    prompts = task.prompts(32, generator).repeat_interleave(GROUP, 0)
    batch = generate(model, task, prompts, rollout_stack, generator)
    with torch.no_grad():
        scored = score(trained, batch.prompt, batch.response, train_stack)
    reward = task.reward(batch.prompt, batch.response, batch.mask)
    mismatch = compare(batch.logp_rollout, scored.logp, batch.mask)
    return reward, mismatch, batch, scored


# %% [markdown]
# Three examples from inside RL, one for each kind of thing that can differ: a number
# format, the sampler, the version of the weights. `delta` is the trainer's logprob minus
# the sampler's, K3 an estimate of the KL between both, and the ratio is `exp(delta)`: the
# number which PPO and GRPO multiply an update by. Trained on fresh samples of its own, a
# policy would see nothing but ones there.

# %% tags=["anchor:rl-examples"]
newer = deepcopy(model)
for _ in rl(newer, task, generator=noise(2), steps=8):
    pass

warm = replace_at(Stack(), "sampler.temperature", 1.5)
examples = {
    "BF16 rollout, FP32 trainer": two_sides(PRESETS["bf16"], Stack()),
    "temperature 1.5 in the sampler only": two_sides(warm, Stack()),
    "rollout weights eight steps old": two_sides(Stack(), Stack(), newer),
    "nothing": two_sides(*2 * [PRESETS["true_on_policy"]]),
}
print(f"{'what differs':37}{'mean |delta|':>13}{'K3':>9}   ratios")
for name, (_, m, *_) in examples.items():
    ratios = f"{m.ratio_min:.2g} to {m.ratio_max:.2g}"
    print(f"{name:37}{m.mean_abs:13.2g}{m.k3:9.1g}   {ratios}")

# %% [markdown]
# The first is arithmetic, small and everywhere. The second and third are another policy
# altogether. The last row is no rounding of the table: with kernels whose result doesn't
# depend on the shape of the batch, two computations of a logprob agree to the last bit.
#
# ## Two shifts that look alike
#
# Served quality fell. Two stories, one checkpoint:
#
# - **the users changed**: they send eleven digits where training had twelve;
# - **the engine changed**: same prompts, but BF16 or INT4 arithmetic.
#
# The first is plain *distribution shift*, the second is *mismatch*.

# %%
outcomes = [
    "reward falls, delta stays exactly 0",
    "reward falls, delta grows",
    "reward stays",
]
question = "Same checkpoint, same engine, prompts of eleven digits. And then?"
predict("00.shifts", question, outcomes)

# %% tags=["anchor:two-shifts"]
exact = PRESETS["true_on_policy"]
shifts = {
    "nothing": two_sides(exact, exact),
    "users": two_sides(exact, exact, task=CumSum(n=11)),
    "engine,\nBF16": two_sides(PRESETS["bf16"], exact),
    "engine,\nINT4": two_sides(PRESETS["int4_weights"], exact),
}
reward = {name: r.mean().item() for name, (r, *_) in shifts.items()}
size = {name: m.mean_abs for name, (_, m, *_) in shifts.items()}
fig, (left, right) = plt.subplots(1, 2)
colours = [style.QUIET, style.TRAIN, style.ROLLOUT, style.ROLLOUT]
style.bars(left, reward, colours, ".2f")
style.label(left, "Reward: new users take it away", "what changed")
style.bars(right, size, colours)
style.label(right, "Mean |delta|: users leave it at 0", "what changed", "nats")
plt.show()
fell = reward["users"] < reward["nothing"] - 0.1
reveal("00.shifts", outcomes[(size["users"] > 0) if fell else 2])

# %% [markdown]
# The two are independent. New prompts take the reward away and leave delta at exactly
# zero, because both sides see the same new prompts and still agree on every token. BF16
# moves delta and leaves the reward where it was. INT4 moves both, and only delta tells
# that the engine did it. So look at delta first: **zero clears the engine**, and the fault
# is in the data or in the policy. (Provided that the engine reports the probability it
# sampled with. Lesson 01 has one that reports another, and hides behind a delta of zero.)
# More data cures the first shift and not the second.

# %%
claim(
    "largest |delta| when only the prompts change",
    shifts["users"][1].max_abs,
    equal=0,
    control=shifts["engine,\nBF16"][1].max_abs,
)

# %% [markdown]
# ## Why the training loss stays calm
#
# GRPO subtracts from each reward the mean of its group, so the advantages of a group sum
# to zero. Before the first update the ratio of every token is 1, by construction, since
# the trainer compares its logprobs with its own. The loss, here a mean over responses, is
# then minus the mean advantage: zero, whatever the sampler did.
#
# Next come three runs of thirty steps. In two the sampler runs on INT4 weights. They
# differ in the **anchor**, that is, in whose logprobs stand as *old* in the ratio: in one
# run those that the sampler reported; in the other the trainer **recomputes** them,
# before it updates. (`LossView` holds what the loss sees, the anchor among it.)

# %%
fates = [
    "neither",
    "only the one with the sampler's logprobs as old",
    "only the one that recomputes them",
    "both",
]
predict("00.loss", "Which of the two INT4 runs collapses?", fates)

# %% tags=["anchor:flat-loss"]
shifted = replace_at(Stack(), "positions.offset", 1)
stacks = {
    "true on-policy": exact,
    "BF16": PRESETS["bf16"],
    "INT4 weights": PRESETS["int4_weights"],
    "temperature 1.5": warm,
    "positions off by one": shifted,
}
first_losses, without_baseline = [], []
print(f"{'rollout stack':22}{'K3':>8}   loss of the first step")
for name, stack in stacks.items():
    train = exact if stack == exact else Stack()
    reward, m, batch, scored = two_sides(stack, train)
    arrays = (scored.logp, scored.logp)  # new and old are one policy: ratio 1
    A = group_advantages(reward, GROUP)
    first_losses.append(grpo(*arrays, A, batch.mask).item())
    without_baseline.append(grpo(*arrays, reward, batch.mask).item())
    print(f"{name:22}{m.k3:8.0e}   {first_losses[-1]:+.1e}")

# %%
int4 = PRESETS["int4_weights"]
arms = {
    "same stack on both sides": (Stack(), "recompute", style.TRAIN),
    "INT4 sampler, its logprobs as old": (int4, "rollout", style.ROLLOUT),
    "INT4 sampler, old recomputed": (int4, "recompute", style.GOOD),
}
loss, passed, policies, k3 = {}, {}, {}, {}
fig, (left, right) = plt.subplots(1, 2)
for name, (stack, anchor, colour) in arms.items():
    policy, view = deepcopy(model), LossView(anchor=anchor)
    how = dict(generator=noise(4), steps=30, rollout_stack=stack, view=view)
    steps = list(rl(policy, task, **how))
    left.plot([s.loss for s in steps], color=colour, label=name)
    right.plot([s.reward for s in steps], color=colour)
    loss[name] = sum(s.loss for s in steps) / len(steps)
    passed[name] = pass_rate(policy, task, Stack(), noise(5))
    policies[name], k3[name] = policy, steps[0].mismatch.k3
left.set_ylim(-0.3, 0.3)
style.label(left, "Loss: no run stands out", "step")
style.label(right, "Reward of the rollouts: one run dies", "step")
fig.legend(loc="outside lower center", ncols=3)
plt.show()
aligned, bypass, recomputed = arms
died = [passed[arm] < passed[aligned] / 2 for arm in (bypass, recomputed)]
reveal("00.loss", fates[died[0] + 2 * died[1]])
print(f"{'':34}{'K3 at step 0':>12}{'mean loss':>11}{'right at the end':>18}")
for name in arms:
    print(f"{name:34}{k3[name]:12.0e}{loss[name]:11.3f}{passed[name]:18.2f}")

# %% [markdown]
# A policy loss isn't an error to be brought down. It is a device whose *gradient* points
# somewhere, and its value stays near zero in the run that learns as in the run that dies.
# K3 told of the INT4 sampler at step 0. It is as large in the third run, which learns: a
# mismatch isn't a verdict, but it is what you have to know about. (Why the anchor decides
# between the two: lessons 01 and 08.)
#
# A supervised loss hides mismatch in another way: it is computed wholly inside the
# training stack and never asks the one that serves. In both cases you see it only if you
# measure delta, or what is served.

# %%
claim(
    "largest |loss| of the first step, five rollout stacks",
    max(map(abs, first_losses)),
    at_most=1e-6,
    control=max(map(abs, without_baseline)),
)
claim(
    "pass rate lost by INT4 logprobs as old ones",
    passed[aligned] - passed[bypass],
    at_least=0.2,
    control=passed[aligned] - passed[recomputed],
)

# %% [markdown]
# ## From a good training run to poor service
#
# Take the policy of the healthy run. Training reports one pass rate, measured by its own
# stack. Here is what users get from the same weights, by the stack that serves them.

# %% tags=["anchor:served-result"]
serving = {
    "as in\ntraining": Stack(),
    "BF16": PRESETS["bf16"],
    "INT4\nKV cache": replace_at(Stack(), "numerics.kv", "int4"),
    "INT4\nweights": int4,
    "temper-\nature 1.5": warm,
    "positions\noff by one": shifted,
}
healthy = policies[aligned]
rates = {  # the prompts are those of the table above
    name: pass_rate(healthy, task, stack, noise(5))
    for name, stack in serving.items()
}
fig, axes = plt.subplots()
style.bars(axes, rates, [style.TRAIN] + 5 * [style.ROLLOUT], ".2f")
style.label(axes, "Same weights: share of right answers, by serving stack")
plt.show()

# %% [markdown]
# Some stacks serve what was trained, some serve ruins, and the size of the difference in
# code says nothing: a shift of one position is worse than four bits. Nor is the sign known
# beforehand; a cooler sampler than in training would *raise* this pass rate. Hence the
# rule: **evaluate on the stack that will serve**, and when training looks well while users
# complain, suspect that something between the two is not aligned.
#
# ## Inject it yourself
#
# The panel sets both stacks of the model above, field by field. Its home is
# [lesson 01](01_two_policies.ipynb), where its pictures are explained; a first visit:
# choose *positions off by one*, then *align*.

# %%
from tinyrl.course import panel

panel([model, newer], task)

# %% [markdown] tags=["anchor:interview"]
# ## In an interview
#
# **One sentence.** *Training-inference mismatch means that what you optimise and what you
# run are two distributions: in LLM RL, the policy that sampled the tokens and the policy
# that is updated on them disagree about their probabilities, even with the same weights,
# and so ratio, KL and update are wrong.*
#
# **Two minutes.** The four layers, one example each that you have measured: the definition
# by two logprobs of one token; the sources by BF16, a temperature on one side, stale
# weights; the effect by the INT4 run whose loss looked healthy; the remedy by the same run
# with old logprobs recomputed. Then stop, and let them choose where to dig.
#
# **Traps.** Don't say that equal weights exclude it. Don't call it distribution shift:
# delta tells them apart. Don't promise that importance sampling solves it. And the letters
# TIS and MIS mean different things to different people: ask, or say which you mean (see
# [the vocabulary](../docs/vocabulary.md)).

# %% [markdown]
# ## Test yourself
#
# 1. Three examples outside RL; which of them does accuracy miss?
# 2. Reward fell and delta is exactly zero. What do you look at next?
# 3. Why is the first GRPO loss zero, and what does that say about the sampler?
# 4. Weights are equal to the bit. Name four things that can still differ.
#
# <details><summary>Answers</summary>
#
# 1. Dropout left on, a feature treated differently, quantised weights. Accuracy missed
#    the last: probabilities moved, hardly any decision did.
# 2. Prompts, then the policy. Both sides agree on every token, so the engine is cleared,
#    if what it reports is what it sampled with.
# 3. Ratio 1 times advantages with mean zero. About the sampler it says nothing.
# 4. Tokens (template, ids, mask), numbers (format, kernel, cache), positions, the sampler
#    (temperature, which logprob is reported). For each there is a lesson.
#
# </details>

# %% [markdown] tags=["anchor:reading"]
# ## Where to read on
#
# - BF16 against FP16 in RL: [arXiv 2510.26788](https://arxiv.org/abs/2510.26788), lesson 03
# - Routing replay, R3: [arXiv 2510.11370](https://arxiv.org/abs/2510.11370), lesson 07
# - GSPO: [arXiv 2507.18071](https://arxiv.org/abs/2507.18071), lesson 08
# - An essay on the whole subject, with experiments in slime:
#   [Chinese](https://github.com/zhaochenyang20/Awesome-ML-SYS-Tutorial/blob/main/rlhf/slime/mismatch/blog-cn.md),
#   [English](https://github.com/zhaochenyang20/Awesome-ML-SYS-Tutorial/blob/main/rlhf/slime/mismatch/blog-en.md)
# - The engines' own documentation: [vLLM](https://docs.vllm.ai/),
#   [SGLang](https://docs.sglang.ai/)

# %% [markdown]
# ## 中文小结
#
# 1. 训推不一致：训练优化的是一个分布，上线跑的是另一个；权重相同也会发生。
# 2. 回答按四层展开：定义、来源、影响、对策，每层配一个自己测过的数字。
# 3. RL 受害最深，因为更新幅度由比值决定，而比值要求两端对同一个 token 给出同样的概率。
# 4. RL 之外也常见：评估时忘关 dropout、特征口径不同、权重量化。
# 5. 准确率只看谁排第一，概率变了它未必知道；INT4 那台服务器就是例子。
# 6. 换了用户，奖励下降而 delta 严格为零；换了引擎，delta 先动。先看 delta 再下结论。
# 7. GRPO 第一步的 loss 恒为零：组内 advantage 之和为零、比值为一，与采样端怎样无关。
# 8. 用 INT4 采样端报的概率当旧概率，训练垮掉而 loss 曲线毫无异样；在训练端重算就好了。
# 9. 训练端自测的通过率，换一套推理栈可能面目全非，所以要在真正上线的栈上评估。
# 10. TIS、MIS 各家含义不同，开口前先说清楚按哪种理解。
