# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Number formats
#
# > **Two engines hold the same weights, one in BF16 and one in FP16, both 16 bits. How far
# > apart are their logprobs, what decides it, and would the same format on both sides make
# > them equal?**
#
# You will take numbers apart bit by bit, see each format fail where it is weak, and then
# measure on a model that samples what its bits are worth. 45 minutes to read, under a
# minute to compute.

# %%
from copy import deepcopy

import matplotlib.pyplot as plt
import torch
from tqdm.auto import tqdm

from tinyrl.advantages import group_advantages
from tinyrl.checkpoints import load
from tinyrl.course import panel, style
from tinyrl.course.claims import claim, seed
from tinyrl.course.panels.bits import NAMES
from tinyrl.course.panels.bit_explorer import BitExplorer
from tinyrl.course.predictions import predict, reveal
from tinyrl.formats import FORMATS, neighbours, quantise, round_to, spacing
from tinyrl.kernels import Kernels, Numerics
from tinyrl.metrics import by_probability, compare, token_delta
from tinyrl.objectives import grpo
from tinyrl.scoring import response_logits, score
from tinyrl.stack import PRESETS, Stack, replace_at
from tinyrl.tasks import CumSum
from tinyrl.trainer import generate, pass_rate, rl

torch.set_num_threads(1)  # the fast setting for a model this small
style.use()
model, task = load("sft"), CumSum()


def noise(offset):
    return torch.Generator().manual_seed(seed(offset))


# %% [markdown] tags=["anchor:bits"]
# ## A number is a few bits
#
# A floating-point number is a sign, an exponent and a mantissa:
#
# $$(-1)^s \cdot 1.m \cdot 2^{\,e - \text{bias}}$$
#
# The exponent says in which octave the number lies, the mantissa where in the octave.
# **FP16 spends its bits as 1 + 5 + 10, BF16 as 1 + 8 + 7**: the one resolves more finely,
# the other reaches as far as FP32 (1 + 8 + 23), of which it is the upper half. FP8 exists
# twice: E4M3 for weights and activations, E5M2, which reaches further, for gradients. INT8
# and INT4 have no exponent: they count steps of a scale that is kept beside them.
#
# Type a number, flip a bit, step to a neighbour. Try `0.1`; then `70000` in FP16 and in
# BF16 (overflow); `1e-8` in FP16 (underflow) and one bit above; the largest exponent bit of
# `1.0`; `500` in E4M3, which has no infinity and stops at its largest number. (Engines
# saturate like that; a cast that does not gives NaN: ml_dtypes#260.)

# %% tags=["anchor:explorer"]
BitExplorer(0.1, "fp16")

# %% [markdown]
# The lower table is the number in every format. Nobody stores 0.1: each format stores its
# own nearest number, so the *same* weight is another weight in each.
#
# ## Range and resolution
#
# The exponent bits decide the range, the mantissa bits the resolution, and together they
# decide the price: memory, and the time to move it.

# %% tags=["anchor:formats"]
print("format        bits      largest  smallest  next after 1  7B weights")
for fmt, f in FORMATS.items():
    parts = f"1+{f.exponent_bits}+{f.mantissa_bits}"
    row = f"{NAMES[fmt]:10}{parts:>8}{f.max:13.6g}{f.smallest_subnormal:10.1g}"
    print(f"{row}{1 + f.epsilon:14.8g}{7 * f.bits / 8:9.1f} GB")

# %% [markdown]
# **FP32** is accurate and expensive: twice the memory of 16 bits, and a fraction of the
# speed where there are tensor cores. **FP8, INT8 and INT4** are the cheap end: an engine
# that decodes a small batch is limited by how fast it can read weights, so half the bits
# are nearly twice the tokens, paid for in error. (With many sequences at once the KV cache
# and the arithmetic count more, and the gain is smaller.) That is why rollout engines run
# them, and most trainers do not; those that do keep master weights and sums in FP32.

# %%
places = ["near 1", "near 1000", "near 100,000"]
predict("03.finer", "Where does BF16 have more numbers than FP16?", places)

# %% tags=["anchor:spacing"]
x = torch.logspace(-9, 6, 4000, dtype=torch.float64)
looks = dict(zip(FORMATS, ["-", "-", "-", "-", "--", "-", "--"]))
colours = [style.QUIET, style.TRAIN, style.ROLLOUT, *2 * [style.GOOD]]
fig, axes = plt.subplots(1, 2, figsize=(style.WIDTH, 3.6))
for (fmt, f), colour in zip(FORMATS.items(), [*colours, *2 * [style.DELTA]]):
    unit = 4 / f.max if f.is_integer else 1  # a scale: 4 is the largest
    there = (x <= f.max * unit) & (x >= f.smallest_subnormal * unit / 2)
    gap = spacing(x[there] / unit, fmt) * unit
    how = dict(label=NAMES[fmt], color=colour, ls=looks[fmt])
    axes[0].loglog(x[there], gap, **how)
    axes[1].loglog(x[there], gap / x[there], **how)
style.label(axes[0], "Gap between neighbours", "x")
style.label(axes[1], "Relative gap: level, but for integers", "x")
axes[1].set_ylim(5e-8, 4)
handles, names = axes[0].get_legend_handles_labels()
fig.legend(handles, names, loc="outside lower center", ncols=7)
plt.show()
print("the numbers on both sides of 1, 1000 and 100,000:")
for fmt in ("fp16", "bf16"):
    below, above = neighbours(torch.tensor([1.0, 1e3, 1e5]) * (1 + 1e-6), fmt)
    print(NAMES[fmt], *zip(below.tolist(), above.tolist()))
reveal("03.finer", places[2])

# %% [markdown]
# Right, a floating-point format keeps *relative* resolution over its range: FP16 eight
# times finer than BF16 wherever FP16 is at home. Its home is small. Below 6e-5 its gaps
# stop shrinking (subnormal numbers: the relative error grows), and past 65504 there is
# nothing. Integers keep *absolute* resolution: fine for the largest weight, coarse for the
# small ones.
#
# ## 1 + 0.001
#
# A sum that is below half a gap changes nothing. Take a weight of 1 and a learning step of
# a thousandth, a thousand times over:

# %%
predict("03.steps", "1 + 0.001 a thousand times in BF16 is", ["1", "1.5", "2"])

# %% tags=["anchor:small-update"]
print("           1 + 0.001   a thousand times")
for fmt in ("fp32", "fp16", "fp8_e4m3", "fp8_e5m2", "bf16"):
    w = [torch.ones(())]
    for _ in range(1000):
        w.append(round_to(w[-1] + 1e-3, fmt))
    print(f"{NAMES[fmt]:10}{w[1].item():10.6f}{w[-1].item():19.6f}")
reveal("03.steps", f"{w[-1].item():g}")

# %% [markdown]
# BF16's first number above 1 is 1.0078; every single step is rounded away. So a trainer
# keeps **master weights and accumulators in FP32** and gives the matrix products, whose
# errors average out, the cheap format. A rollout engine has no updates to lose and keeps
# only the cheap copy.

# %% [markdown] tags=["anchor:softmax"]
# ## Softmax and logsumexp
#
# Every logprob is
#
# $$\log \pi(a) = z_a - \log \sum_v e^{z_v}$$
#
# and $e^z$ uses the range up fast. Here it is in each format, each operation rounded; once
# as written, once with the maximum subtracted first. The last column rounds the logits
# alone: all that INT8 and INT4 can do, which hold no exponentials.

# %%
ends = ["infinite", "about 162,755", "saturated at 65504"]
predict("03.exp", "What is exp(12) in FP16?", ends)

# %% tags=["anchor:logsumexp"]
z = torch.tensor([[12.0, 11.3, 9.1, -2.4]])
right = z.double().log_softmax(-1)[0, 3].item()


def naive(z, fmt):
    total = torch.zeros(len(z))
    for column in round_to(z.exp(), fmt).unbind(-1):
        total = round_to(total + column, fmt)
    return round_to(round_to(z, fmt)[:, 3] - round_to(total.log(), fmt), fmt)


def stable(z, fmt):
    top = z.max(-1, keepdim=True).values
    return naive(round_to(z - top, fmt), fmt)


print(f"logprob of the last token: {right:.4f}")
print("format         exp(12)     naive  max first  logits only")
for fmt, f in FORMATS.items():
    rounded = quantise(z, fmt).double().log_softmax(-1)[0, 3]
    row = [round_to(z.exp(), fmt)[0, 0], naive(z, fmt), stable(z, fmt)]
    cells = [f"{x.item():.{n}f}" for x, n in zip(row, (0, 3, 3))]
    told = "{:>12}{:>10}{:>11}".format(*"---" if f.is_integer else cells)
    print(f"{NAMES[fmt]:10}{told}{rounded:13.3f}")
reveal("03.exp", ends[0])

# %% [markdown]
# FP16 overflows, and the logprob is minus infinity. BF16 does not, and is off by its few
# bits. FP8 is the nasty one: it *saturates*, so the naive logprob is an ordinary number and
# wrong by far. Subtracting the maximum repairs the range, not the resolution: a logit of
# -14.4 has gaps of 0.06 in BF16, and **what is lost in the logit is carried into the
# logprob**. To first order
#
# $$\delta \log \pi(a) = \delta z_a - \sum_v \pi(v)\, \delta z_v,$$
#
# so a token with $\pi(a)$ near 1 subtracts its own error again, and a rare one keeps it
# whole. Remember this for the measurement below. It also says why engines compute softmax
# in FP32 whatever the rest runs in, and why a head that rounds logits on one side only
# hurts.

# %% [markdown] tags=["anchor:loss-scaling"]
# ## What FP16 does to gradients
#
# Gradients are small: a loss that is a mean over a batch divides each by the number of
# tokens. Take the model, a GRPO loss over its own samples, and look at the gradient of
# each logit. FP16 holds nothing below 6e-8, and loses bits from 6e-5 down. So the loss is
# multiplied by a **loss scale** before the backward pass, and the gradients are divided by
# it, in FP32, before the update. How large may it be?

# %%
effects = ["fewer are lost", "some become infinite", "first this, then that"]
predict("03.scale", "Turn the loss scale up, from 1 to 2^40:", effects)

# %% tags=["anchor:flush"]
prompts = task.prompts(64, noise(0)).repeat_interleave(8, 0)
fp16 = PRESETS["fp16"]
batch = generate(model, task, prompts, fp16, noise(1))
logits = response_logits(model, batch.prompt, batch.response, fp16)
logits.retain_grad()
logp = Stack().sampler.reported(logits, batch.response)
reward = task.reward(batch.prompt, batch.response, batch.mask)
A = group_advantages(reward, 8)
grpo(logp, logp.detach(), A, batch.mask).backward()
g = logits.grad[logits.grad != 0]
model.zero_grad()

tokens = int(batch.mask.sum())
scales = 2.0 ** torch.arange(41)
fig, axes = plt.subplots(1, 2, sharey=True)
lost = {}
for ax, (fmt, name) in zip(axes, {"fp16": "FP16", "bf16": "BF16"}.items()):
    for n, look in ((tokens, "-"), (2**20, "--")):
        stored = [round_to(s * g * (tokens / n), fmt) for s in scales]
        flushed = [(y == 0).double().mean().item() for y in stored]
        infinite = [y.isinf().double().mean().item() for y in stored]
        lost[fmt, n] = flushed, infinite
        (line,) = ax.semilogx(scales, flushed, look, color=style.TRAIN, base=2)
        line.set_label(f"mean over {n:,} tokens")
        ax.semilogx(scales, infinite, look, color=style.BAD, base=2)
    style.label(ax, f"{name}: flushed (blue), infinite (red)", "loss scale")
axes[0].legend()
axes[0].set_ylabel("share of the gradients of logits")
plt.show()
flushed, infinite = lost["fp16", tokens]
for k in (0, 10, 20, 40):
    shares = f"{flushed[k]:6.1%} flushed, {infinite[k]:.1%} infinite"
    print(f"FP16, scale 2^{k:2}: {shares}")
print(f"FP16, scale 1, 2^20 tokens: {lost['fp16', 2**20][0][0]:.0%} flushed")
worst = max(map(max, lost["bf16", 2**20]))
print(f"BF16: {worst:.0%} flushed or infinite, at any scale")
reveal("03.scale", effects[2])

# %% [markdown] tags=["anchor:bf16-stable"]
# The dashed line is the same gradients as a part of a batch of a million tokens: divided by
# more, which is arithmetic, not another measurement. Between *too small* and *too large*
# lies a wide plateau, and real trainers search it while they run: double the scale every so
# often, halve it and skip the step when an inf turns up (one inf spoils every weight).
#
# BF16 needs none of that: its range is that of FP32, so nothing overflows that would not
# in FP32, and nothing is flushed. **That is why large models are usually trained in BF16**:
# not since it is more accurate (it is eight times less so) but since its failures are small
# and everywhere rather than rare and fatal.

# %%
claim(
    "share of gradients that FP16 flushes, loss scale 1 (control: 1024)",
    flushed[0], at_least=0.1, control=flushed[10],
)

# %% [markdown] tags=["anchor:rollouts"]
# ## BF16 against FP16 rollouts
#
# Now the other side of the trade. The rollout runs in a format, the trainer in FP32; same
# weights, same tokens. FP16 has three more mantissa bits than BF16.

# %%
factors = ["about as large", "3 times", "8 times", "64 times"]
predict("03.factor", "A BF16 token error is, of an FP16 one,", factors)

# %% tags=["anchor:what-moves"]
prompts = task.prompts(512, noise(2))
stacks = {"FP16": PRESETS["fp16"], "BF16": PRESETS["bf16"]}
for fmt in ("bf16", "int8", "fp8_e4m3", "int4"):
    weights = replace_at(Stack(), "numerics.weights", fmt)
    stacks[f"{NAMES[fmt]} weights"] = weights


@torch.no_grad()
def measure(rollout_stack, train_stack):
    """What `compare` says, and delta, mask and the trainer's logprobs."""
    b = generate(model, task, prompts, rollout_stack, noise(3))
    s = score(model, b.prompt, b.response, train_stack)
    top1 = dict(top1_rollout=b.top1_rollout, top1_train=s.top1)
    m = compare(b.logp_rollout, s.logp, b.mask, **top1)
    return m, token_delta(b.logp_rollout, s.logp, b.mask), b.mask, s.logp


seen = {name: measure(stack, Stack()) for name, stack in stacks.items()}
print("rollout         mean |delta|       K3        ratios  response   top-1")
for name, (m, *_) in seen.items():
    ratios = f"{m.ratio_min:.2f} to {m.ratio_max:.2f}"
    row = f"{name:18}{m.mean_abs:10.1e}{m.k3:9.0e}{ratios:>14}"
    print(f"{row}{m.seq_mean_abs:10.1e}{m.top1_agreement:8.4f}")
bf16, half, int8 = (seen[k][0] for k in ("BF16", "FP16", "INT8 weights"))
token, k3 = bf16.mean_abs / half.mean_abs, bf16.k3 / half.k3
long = bf16.seq_mean_abs / half.seq_mean_abs
print(f"BF16 over FP16: token {token:.1f}, response {long:.1f}, K3 {k3:.0f}")
reveal("03.factor", factors[2])

# %%
claim(
    "BF16 over FP16, mean |delta| of a token (control: INT8 weights over BF16)",
    token, between=(6, 11), control=int8.mean_abs / bf16.mean_abs,
)
claim(
    "BF16 over FP16, K3 (control: if K3 grew like |delta|)",
    k3, between=(36, 121), control=token,
)

# %% [markdown]
# Three mantissa bits are a factor $2^3 = 8$ in every rounding error, and so in delta; K3 is
# about $\delta^2 / 2$, so $8^2 = 64$. Nothing else in the two runs differs, and nothing
# else is needed to explain it. Everything moves with it: logprob, KL, ratio, the sum over a
# response. The favourite token hardly moves, with four bits even: top-1 agreement is no
# alarm for formats.
#
# ## Why INT8 looks like BF16
#
# In the table INT8 weights sit beside BF16. It is no law, it is a count. BF16 has 8
# significant bits at every size. INT8 has 127 steps for the *largest* weight of a row,
# since one scale belongs to each row. In a short row without outliers the largest weight is
# not much larger than a typical one, so a typical one keeps many of those steps:

# %% tags=["anchor:int8"]
W = [p.data for p in model.parameters() if p.ndim == 2]
typical = torch.cat([w.flatten() for w in W]).norm()
peak = torch.cat([w.abs().amax(1) / w.square().mean(1).sqrt() for w in W])
print(f"steps of INT8 up to the rms of a row: {127 / peak.median():.0f} of 127")
for fmt in ("fp16", "bf16", "int8", "fp8_e4m3", "int4"):
    error = torch.cat([(quantise(w, fmt) - w).flatten() for w in W]).norm()
    print(f"{NAMES[fmt]:10} relative error of a weight {error / typical:.1e}")
only = seen["BF16 weights"][0].mean_abs
for name, other in {"weights": only, "everywhere": bf16.mean_abs}.items():
    print(f"delta, INT8 weights / BF16 {name:10} {int8.mean_abs / other:.1f}")

# %% [markdown]
# So an INT8 weight is some three times coarser than a BF16 one, delta two times, which is
# as far off as BF16 weights *and* activations together. The tie breaks where a row has an
# outlier, which stretches the scale for all others; large models have such channels, this
# one has not.
#
# ## Where the error sits

# %% tags=["anchor:low-probability"]
fig, (left, right_ax) = plt.subplots(1, 2)
shares = {}
for name, colour in {"FP16": style.TRAIN, "BF16": style.ROLLOUT}.items():
    _, d, mask, logp = seen[name]
    p, size = logp[mask].exp(), d[mask].abs()
    bins = by_probability(d, logp, mask)
    some = bins.count >= 20  # a mean of fewer tokens is noise
    middles = torch.arange(0.05, 1, 0.1)[some]
    left.semilogy(middles, bins.mean_abs[some], "o-", color=colour, label=name)
    rare = p <= 0.5
    shares[name] = {
        "tokens": rare.double().mean().item(),
        "sum of |delta|": (size[rare].sum() / size.sum()).item(),
        "largest 1 %": rare[size >= size.quantile(0.99)].double().mean().item(),
    }
    times = size[rare].mean() / size[~rare].mean()
    print(f"{name}: mean |delta| is {times:.0f} times larger where p <= 0.5")
style.label(left, "Sure tokens move least", "p of token", "mean |delta|, nats")
left.legend()
style.bars(right_ax, shares["BF16"], style.ROLLOUT, ".0%")
style.label(right_ax, "BF16: share of the tokens with p <= 0.5")
plt.show()

# %% [markdown]
# As the formula said: a sure token gives its error back, an unsure one keeps it. Few tokens
# carry most of the mismatch, and an average over all tokens hides them. They are also the
# tokens on which RL decides something: where the policy is sure, all answers of a group
# agree.
#
# ## Try it
#
# The panel starts with a BF16 rollout and an FP32 trainer. Give both sides BF16 (*align*):
# what is left? Then change a format, or a kernel, on one side.

# %% tags=["anchor:panel"]
panel([model], task, rollout=PRESETS["bf16"])

# %% [markdown] tags=["anchor:same-path"]
# ## The same format, or the same path?
#
# Which is better, FP16 or BF16, is not the question that mismatch asks. It asks whether
# both sides take the **same numerical path**. Nine pairs:

# %%
pairs = ["FP16", "BF16", "equally far"]
predict("03.pairs", "Which rollout is nearer to a BF16 trainer?", pairs)

# %% tags=["anchor:mixed"]
wide = ["fp32", "fp16", "bf16"]
grid = [[measure(PRESETS[r], PRESETS[t])[0] for t in wide] for r in wide]
fig, ax = plt.subplots(figsize=(4.6, 2.9))
sizes = torch.tensor([[m.mean_abs for m in row] for row in grid])
ax.imshow(sizes.log10(), "Blues", vmin=-8, vmax=1, aspect="auto")
ax.set_xticks(range(3), [f"trainer {NAMES[t]}" for t in wide])
ax.set_yticks(range(3), [f"rollout {NAMES[r]}" for r in wide])
for i, j in torch.cartesian_prod(*2 * [torch.arange(3)]).tolist():
    ax.text(j, i, f"{sizes[i, j]:.0e}", ha="center", va="center")
ax.grid(False)
style.label(ax, "Mean |delta|, nats: the coarser side decides")
plt.show()
reveal("03.pairs", pairs[1 if sizes[2, 2] < sizes[1, 2] / 2 else 2])

# %% [markdown]
# **Mixing is as bad as its coarser side**: FP16 in the sampler gains nothing while the
# trainer runs BF16. On the diagonal nearly all is gone: these two sides round at the same
# places, and differ only in the order in which a product adds.
#
# But a dtype is a name, not a path. Here are three pairs that are all "BF16 on both
# sides". In the first, the trainer keeps what lies between two matrices in FP32, as fused
# kernels and FP32 accumulators do; the BF16 is in the weights.

# %% tags=["anchor:dtype-is-not-numerics"]
bf = PRESETS["bf16"]
fused = Stack(numerics=Numerics(weights="bf16"))
fixed = Kernels(attention="naive", shapes="fixed")
exact = Stack(numerics=bf.numerics, kernels=fixed)
paths = {
    "results rounded in one engine only": (bf, fused),
    "another order of adding": (bf, bf),
    "the same kernels, fixed shapes": (exact, exact),
}
apart = {}
for name, (a, b) in paths.items():
    m, d, mask, _ = measure(a, b)
    apart[name] = m
    moved = (d[mask] != 0).double().mean()
    largest = f"mean |delta| {m.mean_abs:.0e}, max {m.max_abs:.0e}"
    print(f"{name:36}{largest}, moved {moved:.1%}")
first, _, same = apart.values()
claim(
    "mean |delta| in BF16, rounded at other places (control: same kernels)",
    first.mean_abs, at_least=bf16.mean_abs / 4, control=same.mean_abs,
)

# %% [markdown]
# The first pair is as far apart as BF16 is from FP32: matching the dtype gained nothing. In
# the second, few tokens move, but one that does moves by a whole BF16 rounding, since a
# last bit decides which way a tie falls. Only the third is zero. So **matching dtype is not
# matching numerics**; lesson 04 takes the kernels apart.
#
# ## What FP16 buys, and what this model can't show
#
# arXiv 2510.26788 trains large models with FP16 on both sides and reports more: a mismatch
# of whole sequences that shrinks by more than eight, and runs that stay stable and learn
# faster where BF16 runs fail. The factor was 8 above, for responses too. And the reward?
# Two runs, each with one format on both sides but rounded at other places, like the first
# pair above. (FP32 gradients: nothing is flushed here.)

# %%
gaps = ["FP16 by 0.1 or more", "BF16 by 0.1 or more", "neither"]
predict("03.reward", "K3 differs by some 64. Which run learns more?", gaps)

# %% tags=["anchor:live-training"]
fig, (left, right_ax) = plt.subplots(1, 2)
rates, k3s = {}, {}
for fmt, colour in {"bf16": style.ROLLOUT, "fp16": style.TRAIN}.items():
    policy = deepcopy(model)
    weights = Stack(numerics=Numerics(weights=fmt))
    how = dict(rollout_stack=PRESETS[fmt], train_stack=weights, steps=60)
    run = rl(policy, task, generator=noise(4), **how)
    steps = list(tqdm(run, total=60, desc=fmt))
    left.plot([s.reward for s in steps], color=colour, label=NAMES[fmt])
    right_ax.semilogy([s.mismatch.k3 for s in steps], color=colour)
    rates[fmt] = pass_rate(policy, task, PRESETS[fmt], noise(5), n=2048)
    k3s[fmt] = sum(s.mismatch.k3 for s in steps) / len(steps)
style.label(left, "Reward of the rollouts", "step")
style.label(right_ax, "K3: apart by the bits, all along", "step", "nats")
left.legend()
plt.show()
print(f"K3, BF16 over FP16: {k3s['bf16'] / k3s['fp16']:.0f}")
print(f"pass rate: BF16 {rates['bf16']:.3f}, FP16 {rates['fp16']:.3f}")
gap = rates["fp16"] - rates["bf16"]
reveal("03.reward", gaps[2] if abs(gap) < 0.1 else gaps[gap < 0])

# %% [markdown]
# The mismatch differs as its bits say, through the whole run; the reward hardly does. One
# run each is an anecdote (`make science` repeats it on five seeds), so nothing is claimed
# but this: **at this size the larger factor and the reward gap of the paper do not show.**
# That refutes nothing: a response of 13 tokens collects little of what 10,000 collect, two
# layers add up fewer roundings than sixty, no expert is routed, and 60 steps are soon
# over. What carries over is the arithmetic: 8, 64, and a zero that no dtype alone gives.
#
# ## For your own stack
#
# - List the formats of weights, activations, cache and head on both sides. The coarser side
#   decides.
# - Between BF16 and FP16 expect a factor of 8 in delta and of 64 in K3. If delta is larger than
#   its format explains, look for another fault.
# - Look at unlikely tokens, not at the favourite. "Both are BF16" is no answer: measure.
#
# ## Check yourself
#
# Answer aloud, then open.
#
# <details><summary>FP16 and BF16: where do the bits go, and what follows?</summary>
#
# 1 + 5 + 10 and 1 + 8 + 7. FP16 is eight times finer between 6e-5 and 65504; BF16 reaches
# from 1e-38 to 3e38, as FP32 does.
# </details>
#
# <details><summary>When does FP16 overflow, when does it underflow, and what is done about
# it?</summary>
#
# From 65520 on, so exp(12) or an outlier activation; below 3e-8 to zero, below 6e-5 with
# fewer bits. Subtract the maximum; scale the loss; keep master weights and sums in FP32.
# </details>
#
# <details><summary>BF16 in the sampler, FP16 in the trainer: what happens to logits and
# logprobs?</summary>
#
# They differ by BF16's rounding, the coarser one, most on unsure tokens. The FP16 side buys
# nothing.
# </details>
#
# <details><summary>Both sides run BF16. A colleague says they match. Ask one
# question.</summary>
#
# "What is delta on a thousand tokens?" Kernels, order, and the places where results are
# rounded differ, so it won't be zero.
# </details>
#
# **Now write it yourself**:
# [lab 03](../labs/lab03_number_formats/lab03_number_formats.ipynb), ten functions, from a
# pattern of bits to the factor of 64.
#
# ## Where to read on
#
# - BF16, FP16 and mismatch in RL: arXiv 2510.26788
# - Mixed precision and loss scaling: arXiv 1710.03740
# - FP8 formats: arXiv 2209.05433; integer quantisation: arXiv 2004.09602
# - D. Goldberg, "What every computer scientist should know about floating-point
#   arithmetic", 1991
#
# ## 中文小结
#
# 1. 浮点数 = 符号 + 指数 + 尾数：指数位决定范围，尾数位决定分辨率。
# 2. FP16 是 1+5+10，BF16 是 1+8+7：前者在自己的范围内细 8 倍，后者与 FP32 一样宽。
# 3. INT8、INT4 没有指数，靠每个输出通道一个 scale；对大权重细，对小权重粗。
# 4. 小于半个间距的更新会被完全舍掉，所以主权重和累加器要用 FP32。
# 5. FP16 里 exp(12) 会溢出；先减最大值只能修复范围，不能找回尾数位。
# 6. FP16 会把很小的梯度冲成 0，需要 loss scaling；放得太大又会变成 inf；BF16 两者都没有。
# 7. 三位尾数：token 误差差 8 倍，K3 差 64 倍，实测与位数之差一致。
# 8. 误差集中在低概率 token 上：高概率 token 的 logit 误差会在归一化时抵消掉。
# 9. 混用格式时误差由较粗的一侧决定；而 dtype 相同也不等于数值路径相同，只有 kernel 与次序都固定才为 0。
# 10. 论文里更大的倍数和奖励差距，在这个小模型上没有出现；能推广的是位数的算术。
