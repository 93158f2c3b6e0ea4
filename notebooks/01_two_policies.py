# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Two policies
#
# > **An inference engine samples a token, a trainer learns from it. Both hold the same
# > weights. Do they agree on that token's probability, and does it matter if they don't
# > quite?**
#
# You will make two engines disagree on a small GPT, measure by how much, see how much of
# it a long answer collects, and find out what it is in a faulty run that destroys the
# policy. 40 minutes to read, under a minute to compute.

# %%
from copy import deepcopy

import matplotlib.pyplot as plt
import torch
from tqdm.auto import tqdm

from tinyrl.checkpoints import load, train_sft
from tinyrl.course import panel, style
from tinyrl.course.claims import claim, seed
from tinyrl.course.predictions import predict, reveal
from tinyrl.metrics import compare, sequence_delta, token_delta
from tinyrl.model import GPT, GPTConfig
from tinyrl.objectives import LossView
from tinyrl.rollout import rollout
from tinyrl.scoring import score
from tinyrl.stack import PRESETS, Stack, replace_at
from tinyrl.tasks import CumSum
from tinyrl.trainer import Recipe, generate, pass_rate, rl

torch.set_num_threads(1)  # the fast setting for a model this small
style.use()
model, task = load("sft"), CumSum()


def noise(offset):
    return torch.Generator().manual_seed(seed(offset))


# %% [markdown] tags=["anchor:engines"]
# ## Who holds the weights twice
#
# RL on a language model alternates between two programs. **vLLM** or **SGLang** generates,
# because it is fast: FP8 or BF16 weights, a KV cache that may be quantised, attention
# kernels made for one new token at a time. **PyTorch, FSDP, DeepSpeed** or **Megatron**
# trains: BF16 with FP32 accumulation, other kernels, all tokens of a sequence at once.
#
# Here both are one small GPT in the shape of Qwen3, run under two *stacks*. A stack is a
# value that lists how the arithmetic is done; a mismatch is the difference of two stacks.
# The side that samples has three names: *rollout* (the stage, and its stack), *engine* (the
# program), *sampler* (the policy that draws, with its temperature and filters). The other
# side is the *trainer*.
#
# The task: twelve digits; answer with their running totals modulo 10. Reward 1 if every
# token is right. The shipped checkpoint manages about a third.

# %% tags=["anchor:rollout-stage"]
prompts = task.prompts(256, noise(0))
batch = generate(model, task, prompts, Stack(), noise(1))
reward = task.reward(batch.prompt, batch.response, batch.mask)

print("prompt   ", task.tokenizer.decode(batch.prompt[0]))
print("response ", task.tokenizer.decode(batch.response[0]))
print("logprobs ", " ".join(f"{x:.2f}" for x in batch.logp_rollout[0]))
print(f"reward    {reward[0]:.0f}, mean of {len(reward)}: {reward.mean():.2f}")

# %% [markdown]
# That was the **rollout stage**: sample responses, and keep for each its tokens, the
# logprob with which each token was drawn, and the reward.

# %% [markdown] tags=["anchor:training-stage"]
# The **training stage** takes these arrays and runs its own forward pass over the same
# tokens. It computes the *new* logprobs (with gradient), the *old* ones (of the policy
# before the update) and, if there is one, those of a reference policy. From them come the
# loss and the update. Then the new weights go to the rollout, and the loop begins again. The
# trainer's old logprobs ought to be the numbers that the rollout reported. Are they?

# %%
shares = ["all of them", "about 60 %", "about 5 %", "none"]
question = (
    "Same weights, both FP32. The rollout decodes token by token with a cache, "
    "the trainer runs one full pass. How many logprobs are equal to the bit?"
)
predict("01.exact", question, shares)

# %% tags=["anchor:same-tokens"]
def scored(batch, stack, policy=model):
    """The trainer's view of the rollout's tokens."""
    with torch.no_grad():
        return score(policy, batch.prompt, batch.response, stack)


train = scored(batch, Stack())
delta = token_delta(batch.logp_rollout, train.logp, batch.mask)
d = delta[batch.mask]
equal = (d == 0).double().mean().item()
print("token  logp_rollout    logp_train      delta")
for t in range(5):
    roll, new = batch.logp_rollout[0, t].item(), train.logp[0, t].item()
    print(f"{t:5}{roll:14.8f}{new:14.8f}{new - roll:11.1e}")
print(f"equal to the bit: {equal:.0%}; largest |delta| {d.abs().max():.1e}")
guesses = torch.tensor([1.0, 0.6, 0.05, 0.0])
reveal("01.exact", shares[(guesses - equal).abs().argmin()])

# %% [markdown] tags=["anchor:token-delta"]
# ## The token delta
#
# $$\delta_t = \log \pi_\text{train}(a_t \mid s_t) - \log \pi_\text{rollout}(a_t \mid s_t)$$
#
# Trainer minus rollout, here and in all that follows: positive where the trainer finds
# the token likelier. Two correct programs, the same weights, and it is not zero, because
# floating-point addition depends on its order, and a product of one row adds in another
# order than one of many rows. A difference like this is called **logprob mismatch**.
# (Narrow tables print d for delta.) In FP32 it is harmless. Is it unavoidable? No:

# %%
exact = PRESETS["true_on_policy"]
on_policy = generate(model, task, prompts, exact, noise(1))
agreed = scored(on_policy, exact)
largest = token_delta(on_policy.logp_rollout, agreed.logp, on_policy.mask)
claim(
    "largest |delta| with shape-independent kernels on both sides",
    largest.abs().max().item(), equal=0, control=d.abs().max().item(),
)

# %% [markdown] tags=["anchor:panel"]
# ## Inject a mismatch
#
# The panel runs both sides: the left column of controls is the rollout's stack, the right
# one the trainer's. The buttons inject; *align* gives both sides the same stack. To give
# "stale weights" a meaning, the next cell first trains eight RL steps and keeps every
# version.
#
# The pictures: every token by its two logprobs (off the diagonal they differ); how many
# tokens have which delta (in decades, to both sides of 0); the same as a ratio, with
# PPO's clip in green; |delta| along the response; |delta| by how likely the token was.
# Try in this order: *BF16 rollout*, *INT4 weights*, *temperature*, *positions off by
# one*. Watch which pictures change, and which numbers don't.

# %%
newer, versions = deepcopy(model), [deepcopy(model)]
for _ in rl(newer, task, generator=noise(2), steps=8):
    versions.append(deepcopy(newer))

panel(versions, task, rollout=PRESETS["bf16"])

# %% [markdown]
# ## Why the same tokens get two probabilities
#
# One part of the rollout's stack at a time; the trainer stays as it is. Before you run it:

# %%
causes = [
    "four-bit weights",
    "a temperature of 0.7 in one engine only",
    "positions of the response off by one",
]
predict("01.worst", "Which moves the logprobs most?", causes)

# %% tags=["anchor:why-differ"]
changes = {
    "KV cache instead of one pass": ("numerics.kv", "fp32"),
    "FP16 weights": ("numerics.weights", "fp16"),
    "BF16 weights": ("numerics.weights", "bf16"),
    "BF16 activations": ("numerics.activations", "bf16"),
    "FP8 KV cache": ("numerics.kv", "fp8_e4m3"),
    "four-bit weights": ("numerics.weights", "int4"),
    "temperature 0.7": ("sampler.temperature", 0.7),
    "positions off by one": ("positions.offset", 1),
}
seen = {}
print(f"{'what differs':30}{'mean |delta|':>13}{'K3':>9}{'top-1':>7}")
for name, (path, value) in changes.items():
    stack = replace_at(Stack(), path, value)
    other = generate(model, task, prompts, stack, noise(1))
    mine = scored(other, Stack())
    top1 = dict(top1_rollout=other.top1_rollout, top1_train=mine.top1)
    m = compare(other.logp_rollout, mine.logp, other.mask, **top1)
    seen[name] = m
    print(f"{name:30}{m.mean_abs:13.1e}{m.k3:9.0e}{m.top1_agreement:7.2f}")
sizes = [seen[name].mean_abs for name in list(changes)[-3:]]
reveal("01.worst", causes[sizes.index(max(sizes))])

# %% [markdown]
# Formats and kernels are **numerics**: two roundings of one model. Temperature and
# positions are **semantics**: another distribution, another question. So is a stale
# version of the weights, or another chat template. The position fault dwarfs everything;
# but four-bit rounding and an undeclared temperature are of one size, so **the size of a
# delta does not tell numerics from semantics**; its pattern does (look at both in the
# panel).
#
# **K3** is the mean of $e^\delta - 1 - \delta$, an estimate of KL(rollout || trainer) a
# token; for small deltas about half of the mean $\delta^2$, and never negative. **K1**,
# the mean of $-\delta$, estimates the same KL, but in it signs cancel (lesson 10 compares
# them). **Top-1 agreement**, the share of tokens on which both sides have the same
# favourite, hardly notices INT4 or a temperature.

# %% [markdown] tags=["anchor:ratio"]
# ## The ratio
#
# PPO and GRPO multiply each token's update by
#
# $$r_t = \exp(\log \pi_\text{new}(a_t \mid s_t) - \log \pi_\text{old}(a_t \mid s_t)),$$
#
# which means: how much likelier has the *update* made this token than it was *when it was
# sampled*? Before the first update new and old are one policy, so every ratio is exactly 1.
# That is no bug, and the gradient is not zero. Take the old logprobs from the other engine,
# and the ratio is $\exp(\delta)$ times the drift, though nothing has been learned.

# %% tags=["anchor:exponential"]
print("  delta    ratio   change of the ratio")
for x in (-3, -1, -0.05, 0.05, 1, 3):
    r = torch.tensor(float(x)).exp().item()
    print(f"{x:7.2f}{r:9.3f}{r - 1:+12.0%}")

# %% [markdown]
# The exponential turns an added error into a multiplied one, and unevenly: +1 and -1 in
# delta are +172 % and -63 % in the ratio. Small errors pass through; one token at +3 weighs
# as much as twenty others. And a clip at 0.8 and 1.2 acts on tokens that did not move.

# %% tags=["anchor:mixed-engines"]
int4 = generate(model, task, prompts, PRESETS["int4_weights"], noise(1))
new = scored(int4, Stack()).logp  # the trainer, before any update
old = {"trainer's own": new, "the INT4 rollout's": int4.logp_rollout}
fig, axes = plt.subplots(1, 2, sharey=True)
clipped = {}
for ax, (whose, logp_old) in zip(axes, old.items()):
    r = (new - logp_old).exp()[int4.mask]
    clipped[whose] = ((r < 0.8) | (r > 1.2)).double().mean().item()
    ax.axvspan(0.8, 1.2, color=style.GOOD, alpha=0.15)
    colour = style.TRAIN if whose == "trainer's own" else style.ROLLOUT
    ax.hist(r.clamp(max=3), bins=60, range=(0, 3), color=colour, log=True)
    share = f"{clipped[whose]:.1%} outside the clip"
    style.label(ax, f"old logprobs: {whose}; {share}", "ratio", "tokens")
plt.show()

# %% [markdown]
# Right: before any learning, tokens lie outside the clip range, and the trust region is
# centred on a policy that the trainer never was. This is the risk of **old from the
# rollout engine, new from the trainer**: clipping at step 0, an update that the clip
# biases, a "KL to the old policy" that is partly a KL between two programs.
#
# ## The sequence delta
#
# A reward belongs to a whole response, and its probability is a product:

# %% tags=["anchor:sequence-delta"]
d = token_delta(int4.logp_rollout, new, int4.mask)
Delta = sequence_delta(d, int4.mask)
length = int4.mask.sum(1)
print(f"mean |delta| of a token          {d[int4.mask].abs().mean():.3f}")
print(f"mean |Delta|, Delta = sum delta  {Delta.abs().mean():.3f}")
print(f"mean |Delta| / T                 {(Delta.abs() / length).mean():.3f}")
print(f"largest ratio of a response      {Delta.max().exp():.1f}")

# %% [markdown]
# Sums run over real tokens only; padding is masked *before* anything is added.
#
# ## What a long response collects
#
# Thirteen tokens is short. For length, take a GPT with a longer context, untrained, since
# rounding doesn't care what a model has learned, and let it write 256 tokens. Two faults:
# BF16 rounding, and a temperature of 0.8 that the trainer doesn't know of.

# %%
growths = [
    "both like T",
    "both like the square root of T",
    "rounding like the root of T, temperature like T in the mean",
]
predict("01.growth", "How do sequence deltas grow with length T?", growths)

# %% tags=["anchor:length"]
long = GPT(GPTConfig(block_size=264), noise(3))
with torch.no_grad():
    long.lm_head.weight.mul_(4)  # sharper than at birth, as a trained model is
start = torch.randint(6, 16, (96, 8), generator=noise(4))
faults = {
    "BF16": (PRESETS["bf16"], style.TRAIN),
    "temperature 0.8": (
        replace_at(Stack(), "sampler.temperature", 0.8), style.ROLLOUT),
}
T = torch.tensor([8, 16, 32, 64, 128, 256])
x = T.double().log()
x = x - x.mean()
spread, bias = {}, {}


def slope(y):
    """The exponent p of y ~ T^p, by least squares on logarithms."""
    return (x @ y.log() / (x @ x)).item()


fig, (left, right) = plt.subplots(1, 2)
for name, (stack, colour) in faults.items():
    how = dict(max_new=256, eos_id=-1, pad_id=0)
    b = rollout(long, start, stack, noise(5), **how)
    logp = scored(b, Stack(), long).logp
    d = token_delta(b.logp_rollout, logp, b.mask)
    Delta, one_sign = (y.cumsum(1)[:, T - 1] for y in (d, d.abs()))
    sd, mean = Delta.std(0), Delta.mean(0).abs()
    error = sd / len(start) ** 0.5
    spread[name], bias[name] = slope(sd), slope(mean)
    left.loglog(T, sd, "o-", color=colour, label=name)
    right.errorbar(T, mean, error, fmt="o-", color=colour, capsize=3)
    alone = (d.std() / compare(b.logp_rollout, logp, b.mask).k3) ** 2
    grown = f"spread ~ T^{spread[name]:.2f}, bias ~ T^{bias[name]:.2f};"
    print(f"{name:15} {grown}")
    print(f"{'':15} in one response bias meets spread at T = {alone:,.0f}")
    if name == "BF16":
        no_cancelling = slope(one_sign.mean(0))
right.set(xscale="log", yscale="log")
style.label(left, "Spread grows like the root of T", "tokens T", "sd, nats")
style.label(right, "Bias like T, if it has a sign", "tokens T", "|mean|, nats")
left.legend()
plt.show()

# %% [markdown]
# Errors without a preferred sign walk at random: their sum spreads as $\sqrt{T}$ (slope
# 0.5 on these axes). An error with a sign adds up as $T$ (slope 1). Sampled from one
# policy and scored by another, delta has a sign in the mean, minus the KL, so
#
# $$\Delta \approx -\mathrm{KL} \cdot T \pm \mathrm{sd} \cdot \sqrt{T}.$$
#
# Both faults have both parts, and the printed T says where the bias of one response
# overtakes its spread: soon under a temperature, very late under BF16. In the right picture
# the BF16 mean is of the size of its standard error (the bars): its exponent means nothing.

# %%
claim(
    "growth exponent of the spread under BF16 (control: if no sign cancelled)",
    spread["BF16"], between=(0.35, 0.65), control=no_cancelling,
)
reveal("01.growth", growths[2 if bias["temperature 0.8"] > 0.75 else 1])

# %% [markdown] tags=["anchor:old-logprobs"]
# ## Whose old logprobs?
#
# New, old and reference logprobs must be of one token, in one context, under one
# definition of the policy. As the denominator of a weight, the *old* one must be that of
# the policy which drew the token:
#
# $$\mathbb{E}_{a \sim \mu}\left[\frac{\pi(a)}{\mu(a)} R(a)\right]
# = \mathbb{E}_{a \sim \pi}[R(a)].$$
#
# A clip asks something else: how far has *this update* moved? Its old logprobs are the
# trainer's own, from before the update. Where sampler and trainer agree both are one
# number; where they don't, one number cannot do both jobs (lesson 09 keeps them apart).
#
# PPO is doubly sensitive: the ratio scales the advantage *and* decides what is clipped.
# Test it. The sampler runs at temperature 0.9; what is the pass rate of the *trainer's*
# policy at temperature 1? Estimate it from the sampler's responses, once with the
# logprobs that it sampled with, once with "raw" ones, before temperature.

# %%
many = task.prompts(4096, noise(6))
truth = pass_rate(model, task, Stack(), noise(7), n=4096)
cool = replace_at(Stack(), "sampler.temperature", 0.9)
estimates = {}
for reported in ("processed", "raw"):
    stack = replace_at(cool, "sampler.logprobs", reported)
    b = generate(model, task, many, stack, noise(8))
    R = task.reward(b.prompt, b.response, b.mask)
    logp = scored(b, Stack()).logp
    w = sequence_delta(token_delta(b.logp_rollout, logp, b.mask), b.mask).exp()
    estimates[reported] = (w * R).mean().item()
    print(f"weighted by {reported:9} logprobs: {estimates[reported]:.3f}")
print(f"the sampler's own pass rate:     {R.mean():.3f}")
print(f"the trainer's, sampled afresh:   {truth:.3f}")

# %% [markdown]
# With raw logprobs delta is zero (up to FP32's last bits), every weight is 1, and the
# estimate is wrong all the same: it is the sampler's pass rate. **A delta of zero proves
# agreement only if the reported logprob is the one that was sampled with.** (More of this
# in lesson 06.)

# %%
claim(
    "error of the pass rate, weighted by the sampler's logprobs",
    abs(estimates["processed"] - truth), at_most=0.05,
    control=abs(estimates["raw"] - truth),
)

# %% [markdown]
# ## Train, with and without the fault
#
# First the small GPT from nothing: supervised, on demonstrations in which each step is
# wrong with probability 0.08 (so that something is left to learn), then GRPO.

# %% tags=["anchor:live-training"]
bar = tqdm(train_sft(seed(9)), total=250, desc="SFT")
for fresh, loss in bar:
    bar.set_postfix(loss=f"{loss:.2f}", refresh=False)
learned = pass_rate(fresh, task, Stack(), noise(10), n=1024)
born = pass_rate(model, task, Stack(), noise(10), n=1024)
print(f"pass rate after SFT: {learned:.2f}; shipped checkpoint: {born:.2f}")

# %% [markdown]
# The shipped checkpoint came about in the same way, with another seed. RL goes on from it,
# since now and then a seed learns little in 250 steps, and RL has nothing to sharpen.
#
# Lesson 00 had three of the four runs below, and the one that took the INT4 rollout's
# logprobs as old died. What killed it: the wrong factor $\exp(\delta)$ in the loss, or
# the clip around it? In the new run the factor stays, and the clip is switched off.

# %%
fates = [
    "dead: it forgets what it could",
    "alive: it learns less than half of what the first run learns",
    "well: it learns most of what the first run learns",
]
question = "INT4 rollouts, their logprobs as old, no clip. The policy is ..."
predict("01.training", question, fates)

# %%
four_bits = PRESETS["int4_weights"]
clip, no_clip = Recipe(), Recipe(clip_low=1.0, clip_high=1e6)
arms = {
    "same stack": (Stack(), "recompute", clip, style.TRAIN),
    "INT4, its logprobs as old": (four_bits, "rollout", clip, style.ROLLOUT),
    "the same, clip off": (four_bits, "rollout", no_clip, style.DELTA),
    "INT4, old recomputed": (four_bits, "recompute", clip, style.GOOD),
}
final = {}
fig, (left, right) = plt.subplots(1, 2)
for name, (stack, anchor, recipe, colour) in arms.items():
    policy = deepcopy(model)
    how = dict(generator=noise(11), steps=60, view=LossView(anchor))
    run = rl(policy, task, rollout_stack=stack, recipe=recipe, **how)
    steps = list(tqdm(run, total=60, desc=name))
    left.plot([s.reward for s in steps], color=colour, label=name)
    right.semilogy([s.mismatch.k3 + 1e-9 for s in steps], color=colour)
    final[name] = pass_rate(policy, task, Stack(), noise(12), n=1024)
style.label(left, "Reward: only the misplaced clip fails", "step")
style.label(right, "K3, rollout to trainer (0 drawn at 1e-9)", "step", "nats")
fig.legend(loc="outside lower center", ncols=4)
plt.show()
for name, rate in final.items():
    print(f"{name:26} pass rate {rate:.2f} (before: {born:.2f})")

# %% [markdown]
# The INT4 runs share their first batch and their rounding. Where the trainer recomputes
# old logprobs, PPO's clip is centred on its own policy, and INT4 noise costs next to
# nothing. Where it takes the rollout's, the policy forgets what it could. The third run
# shows what does the harm: not the factor $\exp(\delta)$, which is an importance weight,
# but the **centre of the clip**. Centred on another policy it stops the gradient of
# tokens that have not moved. With the clip off, the same logprobs let it learn. One run
# is an anecdote: `make science` repeats this notebook on five seeds; lesson 08 shows
# which tokens are stopped.
#
# So mismatch need not be fatal: the last run has as much of it at the start. Nor does
# recomputing always suffice: lesson 09 shows what it leaves and what weights can repair.

# %%
first, bypass, freed, recomputed = arms
claim(
    "INT4 logprobs as old: final pass rate over that of the start",
    final[bypass] / born, at_most=0.5, control=final[recomputed] / born,
)
learnt = (final[freed] - born) / (final[first] - born)
reveal("01.training", fates[(learnt > 0) + (learnt > 0.5)])

# %% [markdown]
# ## Your own arrays
#
# The panel takes any two logprob arrays, NumPy or torch, `[B, T]` with a mask. From a
# terminal in the folder of the course, `.venv/bin/tinyrl diagnose rollout.npy train.npy`
# says what they look like.

# %%
panel(int4.logp_rollout, new, int4.mask)

# %% [markdown]
# ## For your own stack
#
# - Log delta, trainer minus rollout, of every batch: mean, largest and K3 over tokens, and its
#   sum over responses.
# - Ask which logprob the engine reports. If it is the one before temperature and filters, a
#   delta of zero says nothing.
# - Ask whose logprobs stand as old. If they are the rollout's, the clip has another policy's
#   centre.
#
# ## Check yourself
#
# Answer aloud, then open.
#
# <details><summary>A colleague sees ratios of exactly 1.0 in the first step and suspects
# a bug. Is it one?</summary>
#
# No. New and old are the same policy before the first update. The gradient of the ratio is
# the gradient of the logprob, so the update is not zero.
# </details>
#
# <details><summary>Mean delta is 0.00, mean |delta| is 1.7. Aligned?</summary>
#
# No. Signs cancel in the mean, as in K1; look at |delta| or K3. Logprobs that are one
# column late look like that.
# </details>
#
# <details><summary>Why do raw logprobs at temperature 0.7 give delta zero and a wrong
# weight?</summary>
#
# Because both sides report the model at temperature 1, and neither reports the policy that
# drew the tokens.
# </details>
#
# <details><summary>Token errors of 0.01 with random signs, 10,000 tokens: how large is the
# sequence delta? And if all had one sign?</summary>
#
# About 1 (0.01 times the root of 10,000): a factor e on the response. With one sign: 100.
# </details>
#
# **Now write it yourself**:
# [lab 01](../labs/lab01_two_policies/lab01_two_policies.ipynb), eleven functions, each
# checked at once.
#
# ## Where to read on
#
# - BF16, FP16 and mismatch: arXiv 2510.26788
# - The sequence-level ratio, GSPO: arXiv 2507.18071
# - PPO's ratio and clip: arXiv 1707.06347, equations 6 and 7; GRPO: arXiv 2402.03300
# - K1, K2, K3: J. Schulman, "Approximating KL Divergence", 2020
#
# ## 中文小结
#
# 1. 强化学习里同一份权重有两个使用者：采样引擎负责生成，训练框架负责打分和更新。
# 2. 同一串 token、同一份权重，两边算出的 logprob 也不会自动相等，这就是 logprob 不一致（logprob mismatch）。
# 3. token 级差：delta = logp_train − logp_rollout，正值表示训练端认为该 token 更可能。
# 4. 加法顺序不同就足以让 FP32 的最后几位不同；形状无关的 kernel 可以让差值严格为 0。
# 5. 差异分数值类（格式、kernel）与语义类（温度、位置、旧权重）；单看大小分不清，要看差值在各 token 上的分布形态。
# 6. 比值 ratio = exp(logp_new − logp_old)：加性的误差经指数变成乘性的误差，而且正负不对称。
# 7. 序列级差是逐 token 之和：随机误差按 √T 增长，带符号的偏差按 T 增长。
# 8. 重要性权重的分母必须属于真正采样的策略；裁剪的中心应是训练端更新前自己算的值。两侧一致时二者相同。
# 9. delta 为零不等于一致：引擎若上报温度之前的 logprob，差异会被完全掩盖。
# 10. 本例中，用 INT4 采样并把它的 logprob 当作 old，裁剪中心就错了，策略越训越差；放开裁剪或由训练端重算则几乎不受影响。
