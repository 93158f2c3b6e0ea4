# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Corrections
#
# > **One policy sampled, another is trained. Make the two equal, weigh what was
# > sampled, drop some of it, or do nothing: what does each cure, and what does it cost?**
#
# You will take a mismatch apart until nothing is left of it; add up *every* response of
# a tiny world, so that bias and noise of a correction are exact; watch product weights die
# of length; train on stale rollouts with and without cures; and see a bound that is meant
# to protect a run destroy it. Methods are ranked only where seeds separate them, which is
# rarer than you may think. 55 minutes to read, under a minute to compute.

# %%
import math
from dataclasses import replace
from statistics import median
from time import process_time

import matplotlib.pyplot as plt
import torch

from tinyrl.checkpoints import load
from tinyrl.correction import Correction
from tinyrl.course import style
from tinyrl.course.caps import CapPanel
from tinyrl.course.claims import claim, seed
from tinyrl.course.enumerated import world
from tinyrl.course.predictions import predict, reveal
from tinyrl.course.runs_panel import QUICK, RunsPanel
from tinyrl.explain import explain
from tinyrl.objectives import LossView
from tinyrl.objectives.health import diagnostics
from tinyrl.presets import PRESETS as RECIPES
from tinyrl.scoring import score
from tinyrl.stack import PRESETS, Stack, diff, replace_at
from tinyrl.sweeps import experiment, paired, spread
from tinyrl.tasks import CumSum
from tinyrl.trainer import generate, rl

torch.set_num_threads(1)  # the fast setting for a model this small
style.use()
policy, task, BELOW = load("sft"), CumSum(), "outside lower center"


def noise(offset):
    return torch.Generator().manual_seed(seed(offset))


# %% [markdown] tags=["anchor:core"]
# ## Two ideas and three policies
#
# All that follows is one of two ideas: **make the two distributions equal, or weigh the
# difference.** Three policies take part: $\mu$ sampled, $p_\text{old}$ is the trainer's
# policy at that moment, $p_\text{new}$ is being updated:
#
# $$\frac{p_\text{new}}{\mu} = \underbrace{\frac{p_\text{old}}{\mu}}_{\rho:\
# \text{mismatch}}\ \underbrace{\frac{p_\text{new}}{p_\text{old}}}_{r:\ \text{drift}}.$$
#
# The right factor is what PPO clips (lesson 08). The left one is this lesson's.
#
# ## First make them equal
#
# A weight is the *last* remedy. Here the trainer lost the first token of every prompt, as
# another chat template does; the rollout counts positions of its answers one too high, samples
# at a temperature that the trainer knows nothing of, holds INT4 weights and runs another
# attention kernel. Put right one by one, inputs first:

# %% tags=["anchor:align-inputs"]
asked = task.prompts(256, noise(0))
PRODUCT = ("sequence", "truncate", None, math.inf)  # rho of a whole response


def batch_of(rollout, prompts=asked, scored=asked):
    # A rollout, the trainer's logprobs of it, and delta.
    x = generate(policy, task, prompts, rollout, noise(1))
    with torch.no_grad():
        old = score(policy, scored, x.response, Stack()).logp
    return x, old, (old - x.logp_rollout)[x.mask]


def weights(x, old, *how):
    # What a correction makes of these tokens; 0 where it drops one.
    weight, kept = Correction(*how).apply(old, x.logp_rollout, x.mask)
    return torch.where(kept, weight, 0.0)[x.mask].double()


def ess(w):
    return (w.mean() ** 2 / w.square().mean()).item() if w.any() else 0.0


stacks = [Stack()]
for path, value in {"kernels.attention": "naive", "numerics.weights": "int4",
                    "sampler.temperature": 1.2, "positions.offset": 1}.items():
    stacks.append(replace_at(stacks[-1], path, value))
print("still different", " " * 25, "mean |d|  mean weight    ESS")
pairs = [(stacks[-1], asked[:, 1:]), *((s, asked) for s in stacks[::-1])]
for stack, scored in pairs:
    x, old, d = batch_of(stack, scored=scored)
    w = weights(x, old, *PRODUCT)
    wrong = [p.split(".")[1] for p in diff(stack, Stack())]
    wrong += ["tokens"] * (scored is not asked)
    print(f"{', '.join(wrong[::-1]) or 'nothing':50}{d.abs().mean():8.0e}"
          f"{w.mean():11.2g}{ess(w):9.2%}")

# %% [markdown] tags=["anchor:align-numerics"]
# The weight in this table is the product $\prod_t \rho_t$ of a whole response. Its mean is 1
# in expectation, if $\mu$ can sample all that the trainer can; the **effective sample size**
# $(\sum w)^2 / (N \sum w^2)$ says what share of the batch carries it. No weight rescues the
# upper rows: where tokens or positions are wrong, the two policies do not answer the same
# question. (Nor is ESS a judge alone: it can be *higher* where everything is equally hopeless.
# The mean weight, far from 1, gives that away.) The order is the lesson: **weights, tokenizer
# and template first, then positions and padding, formats and kernels last**; weigh what is
# left. For an engineer the first rows are bugs; the INT4 row may be a choice, paid for by speed.
#
# ## To the last bit
#
# *Nothing* differs in the last row, and delta is still not 0: decoding one token at a time
# and scoring all at once are two orders of addition. **True on-policy** wants one engine, one
# format, one way to compute a logprob, *and* arithmetic that does not depend on what is
# computed beside a token (fixed shapes, lesson 04). Then the old logprob is exactly that of
# the policy that sampled, and nothing is left to weigh.

# %% tags=["anchor:true-on-policy"]
how = {"ordinary": Stack(), "fixed shapes": PRESETS["true_on_policy"]}
loops = {n: rl(load("sft"), task, generator=noise(2), recipe=QUICK.recipe,
               steps=15, rollout_stack=s, train_stack=s)
         for n, s in how.items()}
worst, cost = {n: [] for n in how}, {n: [] for n in how}
for _ in range(15):
    for name, loop in loops.items():
        begun = process_time()
        worst[name].append(next(loop).mismatch.max_abs)
        cost[name].append(process_time() - begun)
for name, deltas in worst.items():
    exact = sum(d == 0 for d in deltas)
    print(f"{name:13} exact in {exact:2} of 15 steps, largest |d| "
          f"{max(deltas):.0e}, {1e3 * median(cost[name]):.0f} ms of CPU a step")
claim("largest |d| of every step, fixed shapes (control: ordinary ones)",
      max(worst["fixed shapes"]), equal=0, control=max(worst["ordinary"]))
more = median(cost["fixed shapes"]) / median(cost["ordinary"])
print(f"a step costs {more:.2f} times as much")

# %% [markdown]
# Exact, for a price that is small on this CPU. On GPUs systems report anything from a tenth
# more (verl#7688) to more than twice the time (vLLM with TorchTitan, bit for bit). And read
# what is exact here: the logprobs *before* the step's first update, of rollouts that are not
# stale. In a second minibatch the policy has moved; that is drift, and PPO's business. Asynchronous
# rollouts are never on-policy, however equal the kernels. Does exactness train better? Not
# here: one part in a million was no harm before.
#
# ## Recompute, and what it hides
#
# The usual advice: do not trust the engine's logprob, **let the training graph recompute the
# old one**. Then PPO's ratio is made of one policy at two times. INT4 rollouts, both ways:

# %% tags=["anchor:recompute"]
x, old, d = batch_of(PRESETS["int4_weights"])
A = torch.where(task.reward(x.prompt, x.response, x.mask) > 0, 1.0, -0.5)
for name, anchor in (("recomputed", old), ("the rollout's", x.logp_rollout)):
    seen = diagnostics(old, anchor, A, x.mask)
    low, high, k1 = (seen[x] for x in ("ratio_p01", "ratio_p99", "k1"))
    print(f"old is {name:14} ratio {low:.3f} to {high:.3f} (1 to 99 %), "
          f"clipped {seen['clip_fraction']:.2%}, K1 {k1:.4f}")
print(f"K3 of rollout and trainer: {(d.exp() - 1 - d).mean():.4f}")

# %% [markdown] tags=["anchor:steadiest"]
# Recomputed, every ratio of the first minibatch is exactly 1, no token is clipped, the
# approximate KL is 0. The dashboard is clean *because the trainer is compared with itself*.
# The mismatch did not go away: the samples are still $\mu$'s. So
#
# - recompute: the ratio then means what PPO thinks it means, and the clip is centred on 1
#   (lesson 08 shows a run that dies where it is not);
# - **and** hold the recomputed logprob against the rollout's, log it, and take the weight
#   $\rho$ from there. It can't come out of the ratio any more.
#
# *Decoupled* is the name of this, three policies (arXiv 2110.00641). *Bypass* takes $\mu$ for
# the old policy: one forward pass fewer, and $\rho$ is inside the ratio, and inside its clip.
# Both at once count $\rho$ twice:

# %% tags=["anchor:double"]
try:
    view, twice = LossView(anchor="rollout"), Correction("token", "truncate")
    rl(policy, task, generator=noise(3), view=view, correction=twice)
except ValueError as error:
    print("refused:", error)

# %% [markdown] tags=["anchor:levels"]
# ## Level and operation
#
# A correction is a **level** (whose $\rho$: of a token, of the whole response as a *product*, or
# its *geometric* mean, the T-th root) and an **operation** (*truncate*: weight $\min(\rho, C)$;
# *mask*: drop what is outside the bounds). The letters TIS and MIS are read in two ways:
#
# | | our lesson's text | most papers and systems |
# |---|---|---|
# | **TIS** | *trajectory-level*: one weight for the whole response | ***truncated***, at any level |
# | **MIS** | *mini-batch* or token-level: a finer grain | ***masked***, at any level |
#
# "Token-level", "mini-batch", "step-wise": names are not settled, so say which level and which
# operation. Both readings, on the INT4 batch:

# %% tags=["anchor:readings"]
INF = math.inf
readings = {
    "trajectory: the lesson's TIS": PRODUCT,
    "token: the lesson's MIS": ("token", "truncate", None, INF),
    "mini-batch: also MIS": ("token", "truncate", None, INF, "ratio", True),
    "truncated, token: TIS": ("token", "truncate", None, 2.0),
    "truncated, sequence: TIS": ("sequence", "truncate", None, 2.0),
    "masked, token: MIS": ("token", "mask", 0.5, 2.0),
    "masked, sequence: MIS": ("sequence", "mask", None, 2.0),
    "masked, geometric": ("geometric", "mask", 0.99, 1.01, "one"),
}
print(f"{'':30} mean   largest    ESS   kept")
for name, how in readings.items():
    w = weights(x, old, *how)
    kept = (w > 0).double().mean()
    print(f"{name:30}{w.mean():5.2f}{w.max():10.2f}{ess(w):7.1%}{kept:7.1%}")

# %% [markdown] tags=["anchor:minibatch"]
# A *mini-batch* weight has two meanings more. **Normalised** (verl, slime): weights are divided
# by their mean over the batch, which keeps the size of a step and costs a little bias. **One
# factor for a whole mini-batch** scales the gradient, and Adam divides scale out again: nearly
# nothing is left of it (lesson 05).
#
# ## Exact bias, exact noise
#
# What does a weight do to the *gradient*? In a world of three tokens and five places there
# are 243 responses, each can be looked at, and expectations are sums. The right response is
# all zeros, reward 1. The rollout's logits are off by noise of a standard deviation, the *gap*.
# For $g = \sum_t w_t (R - b) \nabla \log \pi(y_t)$ of one response: **bias**
# $|E g - \nabla J| / |\nabla J|$, and **noise**, its standard deviation over $|\nabla J|$.

# %%
removed = ["nearly all", "about half", "hardly any, or it adds some"]
question = ("Token weights without a bound, gap 0.3. How much of the bias that "
            "uncorrected samples have do they remove?")
predict("09.token", question, removed)

# %% tags=["anchor:exact"]
methods = {
    "nothing": Correction(),
    "token": Correction("token", "truncate", None, INF),
    "token, truncated at 2": Correction("token", "truncate", None, 2.0),
    "token, masked 0.5 to 2": Correction("token", "mask", 0.5, 2.0),
    "product": Correction("sequence", "truncate", None, INF),
    "product, truncated at 2": Correction("sequence", "truncate", None, 2.0),
    "product, masked above 2": Correction("sequence", "mask", None, 2.0),
    "geometric": Correction("geometric", "truncate", None, INF),
    "geometric, masked 0.9 to 1.1": Correction("geometric", "mask", 0.9, 1.1),
    "product, twice": Correction(*PRODUCT, also=Correction(*PRODUCT)),
}
worlds = {gap: world(noise(4), gap=gap) for gap in (0.05, 0.3, 0.7)}
exact = {(gap, name): w.moments(c)
         for gap, w in worlds.items() for name, c in methods.items()}
print(" " * 26, *(f"gap {gap}: bias noise  ESS" for gap in worlds))
for name in methods:
    row = [exact[gap, name] for gap in worlds]
    each = (f"{m.bias:12.3f}{m.noise:6.1f}{m.ess:5.0%}" for m in row)
    print(f"{name:29}", *each)
token, none = (exact[0.3, name].bias for name in ("token", "nothing"))
left = token / none
reveal("09.token", removed[0 if left < 0.25 else 1 if left < 0.7 else 2])
claim("bias of the unbounded product, gap 0.3 (control: of tokens' ratios)",
      exact[0.3, "product"].bias, at_most=1e-9, control=token)

# %% [markdown] tags=["anchor:tis"]
# - **The product is unbiased**, exactly, and the price is noise: at the largest gap ESS is a
#   fraction. That is importance sampling (the idea behind the lesson's TIS).
# - **Token weights (the lesson's MIS) have little noise and keep a good part of the bias.** A token's
#   weight makes its own choice count right. How often its *prefix* is reached, and how the
#   response goes on to its reward, stay $\mu$'s. A finer grain is not a finer correction.
# - **Truncation** trades: a little bias for less noise. **A mask that drops above C can drop
#   what matters most**: the right response is the one that the trainer likes better than the
#   rollout does. Where its product passes the bound, the whole signal goes.
# - **Counted twice** is worse than not at all.
#
# Move the bound, the level, the operation, the mismatch and the length:

# %% tags=["anchor:cap"]
CapPanel(gap=0.5, seed=seed(4))

# %% [markdown]
# Error is the root of bias² + noise²/N. The best bound depends on N: a large batch averages
# noise away and wants hardly a bound; a small one wants a low one. *No number from another
# paper's batch is right for yours*, but between 1.5 and 5 the curve is flat.
#
# ## When nothing is right
#
# The dashed line of the panel, *all weights 1*, is what a correction has to beat. Where does it?

# %% tags=["anchor:nothing"]
gaps = [0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
shown = {"nothing": style.QUIET, "token, truncated at 2": style.ROLLOUT,
         "product, truncated at 2": style.GOOD, "product": style.DELTA}
fig, axes = plt.subplots(1, 2, sharey=True)
found = {(gap, name): world(noise(4), gap=gap).moments(methods[name])
         for gap in gaps for name in shown}
for ax, responses in zip(axes, (64, 4096)):
    for name, colour in shown.items():
        errors = [found[gap, name].error(responses) for gap in gaps]
        ax.semilogy(gaps, errors, "o-", ms=3, color=colour, label=name)
    style.label(ax, f"{responses} responses", "gap", "error, in true gradients")
fig.legend(*axes[0].get_legend_handles_labels(), ncols=4, loc=BELOW)
plt.show()


best = "product, truncated at 2"
small, large = (found[g, "nothing"].error(n) / found[g, best].error(n)
                for g, n in ((0.05, 64), (0.5, 4096)))
claim("error of nothing over truncated product, gap 0.05, 64 responses "
      "(control: gap 0.5, 4096)", small, between=(0.9, 1.1), control=large)

# %% [markdown]
# Left, with a batch of 64 and a gap like BF16's, all curves lie on each other: noise decides, and
# the right correction is **none**. slime's report of 300 runs and Yao et al. say the same of
# small mismatch. Right, the same worlds with many responses: now bias is what is left, and
# only the product removes it.
#
# ## The length trap
#
# A product of T ratios spreads with T. Real tokens, INT4 and BF16 rollouts of the course's
# policy; up to 13 tokens measured, beyond that responses put together from the same tokens,
# drawn independently (an extrapolation: dashed).

# %% tags=["anchor:length-trap"]
lengths = [1, 2, 4, 8, 13, 32, 128, 512, 2048]
bands = {"product 0.5 to 2": (1, 0.5, 2), "geometric 0.9 to 1.1": (0, 0.9, 1.1),
         "geometric 0.999 to 1.001": (0, 0.999, 1.001)}
fig, axes = plt.subplots(1, 2, sharey=True)
share = {}
for ax, preset in zip(axes, ("bf16", "int4_weights")):
    name, (x, old, d) = preset[:4].upper(), batch_of(PRESETS[preset])
    whole = (old - x.logp_rollout)[x.mask.sum(1) == 13].double()
    spreads = []
    for T in lengths:
        picks = torch.randint(len(d), (2000, T), generator=noise(5))
        total = (whole[:, :T] if T <= 13 else d.double()[picks]).sum(1)
        spreads.append(total.std().item())
        for band, (summed, low, high) in bands.items():
            rho = (total if summed else total / T).exp()
            inside = (rho >= low) & (rho <= high)
            share[name, band, T] = inside.double().mean().item()
    print(name, "sd of log product:", *(f"{s:.2g}" for s in spreads))
    for band, colour in zip(bands, (style.BAD, style.GOOD, style.DELTA)):
        kept = [share[name, band, T] for T in lengths]
        ax.semilogx(lengths[:5], kept[:5], "o-", ms=4, color=colour, label=band)
        ax.semilogx(lengths[4:], kept[4:], "o--", ms=4, color=colour)
    style.label(ax, f"{name} rollouts", "tokens T", "share of responses kept")
fig.legend(*axes[0].get_legend_handles_labels(), ncols=3, loc=BELOW)
plt.show()

# %% [markdown]
# One and the same mismatch a token: the product's band empties with length, *without any fault
# getting worse* (trl#4772 met it with TRL's bound of 3). The geometric mean forgets length, so it
# does not starve long responses; it also lets $e^{0.09 \cdot 2048}$ pass without a word. And a
# band of a thousandth drops *short* responses of a good engine, whose mean has not yet averaged
# out, and all of a coarse one. A bound is a statement about level, length **and** engine.

# %% [markdown]
# ## Stale rollouts
#
# Now training, 40 steps, three seeds. Rollouts come from the weights of 8 steps ago.

# %%
picks = ["the masked product", "truncated token weights", "seeds do not say"]
predict("09.rank", "Which correction trains better on stale rollouts?", picks)

# %% tags=["anchor:stale"]
stale = replace(QUICK, staleness=8)
which = {"token, truncated": "token, truncated at 2",
         "product, masked": "product, masked above 2"}
arms = {"fresh": QUICK, "nothing": stale} | {
    arm: replace(stale, correction=methods[x]) for arm, x in which.items()}
runs = experiment(policy, task, arms, [seed(k) for k in (1, 2, 3)])
RunsPanel(policy, task, runs=runs, base=stale)

# %% [markdown]
# The panel begins with these runs. Add an arm: *old logprobs: rollout's* is the bypass.

# %%
final = {name: spread(arm) for name, arm in runs.items()}


def separated(a, b):
    # Student's t on paired differences, three seeds, 5 % on two sides.
    gap = paired(runs[a], runs[b])
    return abs(gap.mean) > 4.30 * gap.sd / math.sqrt(len(gap.values))


cured = [*which]
of_fresh = {n: [v / final["fresh"].values[s] for s, v in f.values.items()]
            for n, f in final.items()}
for a, b in (("fresh", "nothing"), *((c, "nothing") for c in cured),
             *(("fresh", c) for c in cured), cured):
    word = "separated" if separated(a, b) else "not separated"
    print(f"{a} less {b}: {paired(runs[a], runs[b])}: {word}")
claim("pass rate over that of fresh rollouts, uncorrected (control: corrected)",
      of_fresh["nothing"], at_most=0.72,
      control=[v for arm in cured for v in of_fresh[arm]])
a, b = (final[arm].mean for arm in cured)
reveal("09.rank", picks[int(a > b) if separated(*cured) else 2])

# %% [markdown] tags=["anchor:tis-when"]
# This is what corrections are *for*: another engine **or old data**. Uncorrected, runs
# end below fresh ones, some far below; each correction brings most of that back. With three seeds a
# difference must be several times its spread to pass the test above, so a gain that is real
# can fail it. Between two corrections look at what is printed, not at the larger mean. (Exact
# bias said that token weights leave much of it. Between a gradient's bias and a pass rate stand a
# clip, the group's advantages and Adam.)
#
# ## A bound that destroys
#
# Some recipes keep geometric means within a thousandth of 1. Here is such a band on INT4
# rollouts, and beside it a **lottery**: as few responses, at random, of *fresh* rollouts that
# need no correction at all.

# %% tags=["anchor:starved"]
class Lottery(Correction):
    def apply(self, logp_train, logp_rollout, mask):
        drawn = torch.rand(len(mask), 1, generator=luck) < few
        return torch.ones_like(logp_train), mask & drawn


INT4 = replace(QUICK, rollout_stack=PRESETS["int4_weights"], steps=30)
band, one = Correction("geometric", "mask", 0.999, 1.001, "one"), [seed(1)]
tight = {"": replace(INT4, correction=band, steps=20)}
(run,) = experiment(policy, task, tight, one)[""]
few, luck = run.series("kept").mean().item(), noise(6)
luckless = {"": replace(QUICK, correction=Lottery(), steps=20)}
update = QUICK.recipe.groups * QUICK.recipe.group_size / 2  # two minibatches
for name, run in {"tight band": run, "lottery": None}.items():
    run = run or experiment(policy, task, luckless, one)[""][0]
    kept = run.series("kept").mean().item()
    begun, ended = run.evaluations[0].train, run.final.train
    print(f"{name:11}keeps {kept:.1%}, {kept * update:.1f} responses an update"
          f"; pass rate {begun:.2f} -> {ended:.2f}")

# %% [markdown]
# Two numbers tell it: the **kept share**, and how many **responses an update** that leaves.
# Starved is too kind a word: what the policy knew is lost. The lottery's rollouts are perfect,
# so this needs no mismatch and no unlucky choice of responses. With few of them a group's
# advantages no longer sum to zero, and Adam takes steps of full size along whatever they say.
# Before you believe in a bound that protects, look at what it keeps.
#
# ## Which policy gets better?
#
# There are two policies, so report two columns. INT4 rollouts, to be deployed as INT4:

# %% tags=["anchor:which-policy"]
deployed = {"nothing": INT4,
            "product, truncated": replace(INT4, correction=methods[best])}
both = experiment(policy, task, deployed, one)
print("pass rate of         trainer's FP32   sampler's INT4    gap")
for name, (run,) in both.items():
    pi, mu = run.final.train, run.final.rollout
    print(f"{name:20}{pi:14.2f}{mu:17.2f}{pi - mu:+9.2f}")
print("\nexact expected gradient: cosine with that of J(trainer), J(rollout)")
for name in ("nothing", "product"):
    row = []
    for gap, w in worlds.items():
        weight, _ = methods[name].apply(w.train, w.rollout, w.train < 1)
        g, goals = w.expected(weight), (w.true_gradient, w.rollout_gradient)
        pair = [(g * G).sum() / g.norm() / G.norm() for G in goals]
        row.append("gap {}: {:.3f} {:.3f}".format(gap, *pair))
    print(f"{name:9}", *row, sep="  ")

# %% [markdown]
# Rounding is part of the sampler. Uncorrected, training pushes what makes *the sampler*
# succeed, as quantisation-aware training does; weighted, it improves the trainer's policy, of
# which INT4 is then the worse copy. (One seed: read the gap within a row, one set of weights
# under two stacks, and nothing across rows.) If what sampled is what you deploy, **doing nothing
# may be what you want**. And the reward in your log is the sampler's: a correction can look
# worse there and be better.

# %% [markdown] tags=["anchor:not-settled"]
# ## What weights can't do
#
# - **What was never drawn has no weight.** The tail that top-p cuts is outside the support
#   (lesson 06): the mean weight is below 1, and nothing is unbiased.
# - **Large mismatch**: the first rows of the first table had no effective sample left.
# - **Wrong weights**: from raw logprobs or another template, $\rho$ is not $p_\text{old}/\mu$.
# - **Routers**: a flip is replayed (lesson 07), not weighed.
# - **The cause** stays. A weight mends the update, not the engine.
#
# ## In the words of the frameworks
#
# Flags hide level, operation, bounds and denominator. `tinyrl explain verl
# rollout_is=sequence ...` says them on the terminal; here:

# %% tags=["anchor:explain"]
flags = ["rollout_is=sequence", "rollout_is_threshold=2.0",
         "rollout_rs=seq_mean_k1", "rollout_rs_threshold=0.6_1.4"]
reading = explain("verl", flags)
for part in reading.parts:
    print(f"- {part.operation.en}\n  bounds: {part.bounds.en}")
print("traps:", *(trap.en for trap in reading.traps), sep="\n- ")
print(f"\n{'recipe':25}{'level':11}operation  bounds        divides by")
for name in ("verl/decoupled_token_is", "verl/decoupled_geo_rs", "trl/default",
             "slime/use_tis", "openrlhf/icepop", "skyrl/geometric"):
    c = RECIPES[name].correction
    low, up, by = c.lower or 0, c.upper, c.denominator
    print(f"{name:25}{c.level:11}{c.operation:9}{low:6.4g} to {up:<7.4g}{by}")

# %% [markdown] tags=["anchor:names"]
# `sequence` is the product in verl, TRL and slime, the geometric mean in AReaL and ms-swift.
# With *all*, what was dropped counts as zero and the gradient shrinks; with *kept* it does not.
# The same words are other weights: read flags with this table beside them.
#
# ## The ranking, tested
#
# The text that this course follows ranks true on-policy, trajectory and finer weights by grain,
# scope, stability and speed. In place of adjectives, what this notebook measured:

# %% tags=["anchor:ranking"]
print(f"{'':18}  bias  noise   ESS at gap 0.3   pass rate, stale rollouts")
for arm, name in {"nothing": "nothing", **which}.items():
    m = exact[0.3, name]
    print(f"{arm:18}{m.bias:6.3f}{m.noise:7.2f}{m.ess:6.0%}{final[arm]!s:>36}")
own = world(noise(4), gap=0.0).moments(Correction())
print(f"{'true on-policy':18}{own.bias:6.3f}{own.noise:7.2f}{own.ess:6.0%}"
      f"{final['fresh']!s:>36} (fresh), a step {more:.2f} times")

# %% [markdown]
# - *Grain, scope*: a finer weight has less noise and **more** bias; it is not more of a correction.
# - *Stability*: what was separated above, and no more. The means of two corrections change
#   places from one set of seeds to the next. Larger studies contradict each other: Liu and Li (September 2025) see token weights collapse and
#   masked products survive; DPPO (arXiv 2602.04879) sees truncated weights fail *before* plain ones.
# - *Speed*: on-policy to the bit pays in every step, a decoupled weight one forward pass, a bypass
#   nothing.
#
# ## Check yourself
#
# Answer aloud, then open.
#
# <details><summary>What is true on-policy, and what is it worth?</summary>
#
# The logprob that trains is, to the bit, that of the policy that sampled: same weights, engine,
# formats, shapes. Nothing is left to weigh, and any delta is a bug. It costs kernels, and makes
# no data less stale.
# </details>
#
# <details><summary>Why recompute old logprobs, and what must you not conclude?</summary>
#
# The ratio then measures the update alone and starts at 1. That it does says nothing of the
# rollout: keep its logprobs, and compare.
# </details>
#
# <details><summary>The idea of TIS, in both readings?</summary>
#
# Trajectory-level: weigh a response by the product of its ratios; exact, and noisy. Truncated:
# cap weights, at any level; some bias for less noise.
# </details>
#
# <details><summary>And MIS?</summary>
#
# Token or mini-batch level: less noise; the bias of prefix and outcome stays. Masked: drop what
# is outside the bounds, which may be the signal, or everything.
# </details>
#
# <details><summary>A product mask kept 90 % at length 100 and 5 % at 2,000. What broke?</summary>
#
# Perhaps nothing: products spread with length. Compare deltas a token, and geometric means.
# </details>
#
# **Now write it yourself**: [lab 09](../labs/lab09_corrections/lab09_corrections.ipynb), eight
# functions, each checked at once.
#
# ## Where to read on
#
# - Three policies: arXiv 2110.00641; in AReaL: arXiv 2505.24298
# - IcePop, a token mask: arXiv 2510.18855; off-policy sequence masking: arXiv 2512.02556 §3.1
# - Against decoupling: arXiv 2602.04879; a control arm without mismatch: arXiv 2605.14220
# - Bounds and length: trl#4772; bounds upside down: verl#6377; true on-policy: verl#7688
#
# ## 中文小结
#
# 1. 只有两条路：让两个分布相等，或给差异加权；先对齐权重、分词器、模板，再对齐位置、格式和算子。
# 2. True on-policy 指训练用的 logprob 与采样策略逐位相等；这里代价不大，但不能让陈旧的数据变新。
# 3. 训练侧重算 old logprob 后，第一个 minibatch 的比值恒为 1：这是自己和自己比，不说明没有失配。
# 4. 权重 p_old/μ 要另算：decoupled 把它放在损失外面，bypass 放在比值里面，两处都放就重复计算。
# 5. TIS、MIS 有两种读法：教材按粒度（轨迹级；token 或 mini-batch 级），多数论文按操作（截断；屏蔽）。
# 6. 穷举表明：连乘权重无偏但噪声大；token 级权重噪声小，却留下可观的偏差；截断以偏差换噪声。
# 7. 失配很小而 batch 也小时，什么都不做与加权没有差别；batch 很大时偏差才显现出来。
# 8. 连乘的散布随长度增长，同一个界在长回答上几乎全丢；几何平均不会，但过窄的界同样会全丢。
# 9. 陈旧 rollout 下不修正，通过率远低于新鲜 rollout；修正能补回大部分，三个种子难分哪种更好。
# 10. 过紧的屏蔽每步只留下极少回答，会毁掉策略；不修正优化的更接近采样策略，量化部署时未必是坏事。
