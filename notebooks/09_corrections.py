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
# You will take a mismatch apart until nothing is left of it. You will add up *every*
# response of a tiny world, so that bias and noise of a correction are exact, and see what
# length does to product weights. Then you train on stale rollouts, with and without
# corrections, and test a bound that is meant to protect a run. Methods are ranked only
# where seeds separate them. 55 minutes to read, under a minute to compute.

# %%
from dataclasses import dataclass, field, replace
from math import inf, sqrt
from statistics import mean, median
from time import process_time

import matplotlib.pyplot as plt
import torch

from tinyrl.checkpoints import load
from tinyrl.correction import Correction
from tinyrl.course import style
from tinyrl.course.claims import claim, seed
from tinyrl.course.lessons.enumerated import table, versus, world
from tinyrl.course.panels.cap_panel import CapPanel, plot_errors
from tinyrl.course.panels.runs_panel import QUICK, RunsPanel
from tinyrl.course.predictions import predict, reveal
from tinyrl.explain import explain
from tinyrl.metrics import compare, ess, sequence_delta
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
PRODUCT = ("sequence", "truncate", None, inf)  # rho of a whole response


def batch_of(rollout, prompts=asked, scored=asked):
    # A rollout, the trainer's logprobs of it, and delta.
    x = generate(policy, task, prompts, rollout, noise(1))
    with torch.no_grad():
        old = score(policy, scored, x.response, Stack()).logp
    return x, old, (old - x.logp_rollout)[x.mask]


def weights(x, old, *how):
    # What a correction makes of each token, or of each response where its
    # level is one; 0 where it is dropped.
    weight, kept = Correction(*how).apply(old, x.logp_rollout, x.mask)
    w = torch.where(kept, weight, 0.0).double()
    return w[x.mask] if how[0] == "token" else w.amax(1)


stacks = [Stack()]
for path, value in {"kernels.attention": "naive", "numerics.weights": "int4",
                    "sampler.temperature": 1.2, "positions.offset": 1}.items():
    stacks.append(replace_at(stacks[-1], path, value))
print("still different", " " * 25, "mean |d|  mean weight    ESS")
for stack, scored in ((stacks[-1], asked[:, 1:]),
                      *((stack, asked) for stack in stacks[::-1])):
    x, old, d = batch_of(stack, scored=scored)
    seen = compare(x.logp_rollout, old, x.mask)
    rho = sequence_delta(old - x.logp_rollout, x.mask).double().exp()
    wrong = [p.split(".")[1] for p in diff(stack, Stack())]
    wrong += ["tokens"] * (scored is not asked)
    print(f"{', '.join(wrong[::-1]) or 'nothing':50}{d.abs().mean():8.0e}"
          f"{rho.mean():12.2g}{seen.ess_seq:8.2%}")

# %% [markdown] tags=["anchor:align-numerics"]
# The weight in this table is the product $\prod_t \rho_t$ of a response, one for each of the
# 256. Its mean is 1 in expectation, if $\mu$ can sample all that the trainer can; the
# **effective sample size** $(\sum w)^2 / (N \sum w^2)$ says what share of the batch carries it,
# at worst one response. No weight rescues the upper rows: where tokens or positions are wrong,
# the two policies do not answer the same question. (Log weights are not cut here. `Correction`
# cuts them at ±20, as verl does; rows that are all cut would have equal weights, and an ESS of
# 100 % that means nothing.) One order of repair can't show that it is the best. The one we
# advise: **weights, tokenizer and template first, then positions and padding, then the
# sampler's temperature and filters, formats and kernels last**; weigh what is left. For an
# engineer the first rows are bugs; the INT4 row may be a choice, made for speed.
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
               steps=6, rollout_stack=s, train_stack=s) for n, s in how.items()}
seen = {name: [] for name in how}
for name, loop in [*loops.items()] * 6:  # in turn
    begun = process_time()
    seen[name].append((next(loop).mismatch.max_abs, process_time() - begun))
for name in how:
    deltas, seconds = zip(*seen[name])
    print(f"{name:13} exact in {deltas.count(0)} of 6 steps, largest |d| "
          f"{max(deltas):.0e}, {1e3 * median(seconds):.0f} ms of CPU a step")
claim("largest |d| of every step, fixed shapes (control: ordinary ones)",
      max(seen["fixed shapes"])[0], equal=0, control=max(seen["ordinary"])[0])

# %% [markdown]
# Exact, for a price that is small on this CPU. On GPUs systems report anything from a tenth
# more (verl#7688, an open preview) to more than twice the time (vLLM with TorchTitan, bit for
# bit). It is a control arm, too: a run that fails with delta 0 did not fail by mismatch. And
# read what is exact here: the logprobs *before* the step's first update, of rollouts
# that are not stale. In a second minibatch the policy has moved; that is drift, and PPO's
# business. Asynchronous rollouts are **off-policy**, however equal the kernels.
#
# ## Recompute, and what it hides
#
# The usual advice: do not trust the engine's logprob, **let the training graph recompute the
# old one**. Then PPO's ratio is made of one policy at two times. INT4 rollouts, both ways, as
# the update sees them: its first minibatch, half of the batch, is scored once more:

# %% tags=["anchor:recompute"]
engines = {p: batch_of(PRESETS[p]) for p in ("bf16", "int4_weights")}
x, old, d = engines["int4_weights"]
A = torch.where(task.reward(x.prompt, x.response, x.mask) > 0, 1.0, -0.5)
half = len(A) // 2  # with the gradient, as the loss does
new = score(policy, x.prompt[:half], x.response[:half], Stack()).logp.detach()
for name, anchor in (("recomputed", old), ("the rollout's", x.logp_rollout)):
    seen = diagnostics(new, anchor[:half], A[:half], x.mask[:half])
    print(f"old is {name:14} ratio {seen['ratio_p01']:.3f} to "
          f"{seen['ratio_p99']:.3f} (1 to 99 %), clipped "
          f"{seen['clip_fraction']:.2%}, K1 {seen['k1']:.4f}")
print(f"K3 of rollout and trainer: {(d.exp() - 1 - d).mean():.4f}")

# %% [markdown] tags=["anchor:steadiest"]
# Recomputed, every ratio of the first minibatch is 1 up to the order of addition, no token is
# clipped, the approximate KL is 0. The dashboard is clean *because the trainer is compared with
# itself*. The mismatch did not go away: the samples are still $\mu$'s. So
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
# *mask*: drop what is outside the bounds). The letters TIS and MIS are read in two ways. The
# *syllabus* here is the Chinese lesson whose points this course teaches (docs/vocabulary.md):
#
# | | the syllabus | most papers and systems |
# |---|---|---|
# | **TIS** | *trajectory-level*: one weight for the whole response | ***truncated***, at any level |
# | **MIS** | *mini-batch* or token-level: a finer grain | ***masked***, at any level |
#
# "Token-level", "mini-batch", "step-wise": names are not settled, so say which level and which
# operation. Both readings, on the INT4 batch:

# %% tags=["anchor:readings"]
readings = {
    "trajectory: syllabus' TIS": PRODUCT,
    "token: syllabus' MIS": ("token", "truncate", None, inf),
    "mini-batch: also MIS": ("token", "truncate", None, inf, "ratio", True),
    "truncated, token: TIS": ("token", "truncate", None, 2.0),
    "truncated, sequence: TIS": ("sequence", "truncate", None, 2.0),
    "masked, token: MIS": ("token", "mask", 0.5, 2.0),
    "masked, sequence: MIS": ("sequence", "mask", None, 2.0),
    "masked, geometric": ("geometric", "mask", 0.99, 1.01, "one"),
}
print(f"{'':30} mean   largest    ESS   kept (of tokens or responses)")
for name, how in readings.items():
    w = weights(x, old, *how)
    print(f"{name:30}{w.mean():5.2f}{w.max():10.2f}{ess(w.log()):7.1%}"
          f"{(w > 0).double().mean():7.1%}")

# %% [markdown] tags=["anchor:minibatch"]
# A *mini-batch* weight has two more meanings. **Normalised** (verl, slime): weights are divided
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
removed = "nearly all", "about half", "in some worlds most, in some none"
predict("09.token", "Token weights without a bound, gap 0.3, twenty worlds: "
        "how much of uncorrected samples' bias do they remove?", removed)

# %% tags=["anchor:exact"]
methods = {
    "nothing": Correction(),
    "token": Correction("token", "truncate", None, inf),
    "token, truncated at 2": Correction("token", "truncate", None, 2.0),
    "token, masked 0.5 to 2": Correction("token", "mask", 0.5, 2.0),
    "product": Correction("sequence", "truncate", None, inf),
    "product, truncated at 2": Correction("sequence", "truncate", None, 2.0),
    "product, masked above 2": Correction("sequence", "mask", None, 2.0),
    "geometric": Correction("geometric", "truncate", None, inf),
    "geometric, masked 0.9 to 1.1": Correction("geometric", "mask", 0.9, 1.1),
    "product, twice": Correction(*PRODUCT, also=Correction(*PRODUCT)),
}
GAPS = 0.05, 0.3, 0.7
worlds = {gap: world(noise(4), gap=gap) for gap in GAPS}
exact = {(gap, name): w.moments(c)
         for gap, w in worlds.items() for name, c in methods.items()}
print(table({f"gap {gap}": {name: exact[gap, name] for name in methods}
             for gap in GAPS[1:]}), "\n\nin twenty other worlds each:")
against = {"token": "nothing", "product": "token", "product, twice": "nothing"}
duels = {}
for gap in GAPS:
    drawn = [world(noise(100 + k), gap=gap) for k in range(20)]
    for one, other in against.items():
        duel = duels[gap, one] = versus(drawn, methods[one], methods[other])
        print(f"gap {gap:4}, {one:14} over {other:8}: {duel}")
low, *_, high = duels[0.3, "token"].bias  # that is left, of each world
reveal("09.token", removed[0 if high < 0.25 else 1 + (low < 0.3 or high > 0.7)])

# %% [markdown] tags=["anchor:tis"]
# - **The product is unbiased**, exactly, and the price is noise: at the largest gap ESS is a
#   fraction. That is importance sampling (the idea behind the syllabus' TIS).
# - **Token weights (the syllabus' MIS)** mostly have less noise than the product, clearly so at
#   the largest gap, and they leave bias. How much is a matter of the world. A token's
#   weight makes its own choice count right; how often its *prefix* is reached, and how the
#   response goes on to its reward, stay $\mu$'s. But look at the **cosine**: in most worlds the
#   expected gradient points better than without weights, and much of the bias is its *length*.
# - **Truncation** trades: a little bias for less noise. **A mask that drops above C can drop
#   what matters most**: the right response is the one that the trainer likes better than the
#   rollout does. Where its product passes the bound, the whole signal goes.
# - **Counted twice** has, from gap 0.3 on, more bias and more noise than nothing at all in
#   most worlds.
#
# Move the bound, the level, the operation, the mismatch and the length:

# %% tags=["anchor:cap"]
CapPanel(gap=0.5, seed=seed(4))

# %% [markdown]
# Error is the root of bias² + noise²/N. The best bound depends on N: a large batch averages
# noise away and wants hardly a bound; a small one wants a low one. *No number from another
# paper's batch is right for yours.* The panel says how flat the curve is between 1.5 and 5
# for your N: flat for 64 responses, not for 4096.
#
# ## When nothing is right
#
# The dashed line of the panel, *all weights 1*, is what a correction has to beat. Where does it?

# %% tags=["anchor:nothing"]
gaps = [0.01, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
shown = "nothing", "token, truncated at 2", "product, truncated at 2", "product"
tiny = {gap: world(noise(4), gap=gap) for gap in gaps}
plot_errors(tiny, {name: methods[name] for name in shown}, (64, 4096))
plt.show()
print(f"mean |d| of BF16 rollouts: {engines['bf16'][2].abs().mean():.4f}, of "
      f"gap 0.01: {tiny[0.01].size:.4f}, of gap 0.05: {tiny[0.05].size:.4f}")
small, large = (tiny[g].moments(methods["nothing"]).error(n)
                / tiny[g].moments(methods[shown[2]]).error(n)
                for g, n in ((0.05, 64), (0.5, 4096)))
claim("error of nothing over truncated product, gap 0.05, 64 responses "
      "(control: gap 0.5, 4096)", small, between=(0.9, 1.1), control=large)

# %% [markdown]
# Left, with a batch of 64 and gaps whose deltas are like BF16's or several times larger, all
# curves lie on each other: noise decides, and the right correction is **none**. slime's report
# of 300 runs and Yao et al. say the same of small mismatch. Right, the same worlds with many
# responses: now bias is what is left, and only the product removes it.
#
# ## The length trap
#
# A product of T ratios spreads with T. Real tokens, INT4 and BF16 rollouts of the course's
# policy; up to 13 tokens measured, beyond that responses put together from the same tokens,
# drawn independently (an extrapolation: dashed).

# %% tags=["anchor:length-trap"]
lengths = [1, 2, 4, 8, 13, 32, 128, 512, 2048]
bands = {"product 0.5 to 2": (1, 0.5, 2, style.BAD, 4),  # below the others
         "geometric 0.9 to 1.1": (0, 0.9, 1.1, style.GOOD, 2),
         "geometric 0.999 to 1.001": (0, 0.999, 1.001, style.DELTA, 2)}
fig, axes = plt.subplots(1, 2, sharey=True)
for ax, (preset, (x, old, d)) in zip(axes, engines.items()):
    whole = (old - x.logp_rollout)[x.mask.sum(1) == 13].double()
    sums = []
    for T in lengths:
        picks = torch.randint(len(d), (2000, T), generator=noise(5))
        sums.append((whole[:, :T] if T <= 13 else d.double()[picks]).sum(1))
    for band, (summed, low, high, colour, lw) in bands.items():
        rho = [(x if summed else x / T).exp() for x, T in zip(sums, lengths)]
        kept = [((r >= low) & (r <= high)).double().mean() for r in rho]
        look = {"color": colour, "lw": lw, "ms": 2 + lw}
        ax.semilogx(lengths[:5], kept[:5], "o-", label=band, **look)
        ax.semilogx(lengths[4:], kept[4:], "o--", **look)
    style.label(ax, f"{preset[:4].upper()} rollouts", "tokens T", "share kept")
fig.legend(*axes[0].get_legend_handles_labels(), ncols=3, loc=BELOW)
plt.show()

# %% [markdown]
# A token's mismatch is the same at every length, and still the product's band empties, *without
# any fault getting worse* (trl#4772 met it with TRL's bound of 3). The geometric mean forgets length, so it
# does not starve long responses; it also lets $e^{0.09 \cdot 2048}$ pass without a word. And a
# band of a thousandth drops *short* responses of a good engine, whose mean has not yet averaged
# out, and all of a coarse one. A bound is a statement about level, length **and** engine.

# %% [markdown]
# ## Stale rollouts
#
# Now training: three seeds, few steps, and a learning rate at which old rollouts hurt soon.
# Rollouts come from the weights of 8 steps ago, so that $\rho$ now holds staleness, too.

# %%
picks = ["the masked product", "truncated token weights", "seeds do not say"]
predict("09.rank", "Which correction trains better on stale rollouts?", picks)

# %% tags=["anchor:stale"]
FAST = replace(QUICK, steps=24, recipe=replace(QUICK.recipe, lr=1e-3, groups=6))
stale = replace(FAST, staleness=8, steps=28, evaluate_every=4, prompts=128)
which = {"token, truncated": "token, truncated at 2",
         "product, masked": "product, masked above 2"}
arms = {"fresh": replace(stale, staleness=0), "nothing": stale} | {
    arm: replace(stale, correction=methods[x]) for arm, x in which.items()}
runs = experiment(policy, task, arms, [seed(k) for k in (1, 2, 3)])
RunsPanel(policy, task, runs=runs, base=stale)

# %% [markdown]
# The panel begins with these runs (two equal policies have a K3 of 0, drawn at the bottom). Add
# an arm: *old logprobs: rollout's* is the bypass. At this rate a pass rate swings from step to
# step, also with fresh rollouts, so what is compared is the mean of the last three evaluations.

# %%
def late(run):  # at steps 20, 24 and 28: one alone swings widely
    return mean(seen.train for seen in run.evaluations[-3:])


def separated(a, b):
    gap = paired(runs[a], runs[b], late)  # Student's t, 5 %, two sides, 3 seeds
    return abs(gap.mean) > 4.30 * gap.sd / sqrt(3)


final = {name: spread(arm, late) for name, arm in runs.items()}
pairs = [("fresh", "nothing"), *((c, "nothing") for c in which),
         *(("fresh", c) for c in which), tuple(which)]
for a, b in pairs:
    print(f"{a} less {b}: {paired(runs[a], runs[b], late)}:"
          f"{'' if separated(a, b) else ' not'} separated")
print(f"{len(pairs)} tests at 5 %: one by luck in <= {len(pairs) * 0.05:.0%}")
rates = torch.tensor([[[seen.train for seen in run.evaluations]
                       for run in arm] for arm in runs.values()])
gain = rates[2:].mean(0) - rates[1]  # [seeds, evaluations], by correcting
claim("late pass rate, corrected less uncorrected runs (control: at step 4)",
      gain[:, -3:].mean(1).tolist(), at_least=0.1, control=gain[:, 1].tolist())
token, product = (final[arm].mean for arm in which)
reveal("09.rank", picks[int(token > product) if separated(*which) else 2])

# %% [markdown] tags=["anchor:tis-when"]
# This is what corrections are *for*: another engine **or old data**. What holds on every set of
# seeds that this notebook is checked on is the claim, and it is of means: old rollouts do harm
# late, and correcting them takes much of the harm back. How far a single run falls differs
# much. Which pairs are *separated* changes with the seeds. With three of them a difference must
# be several times its spread, so a real gain often fails the test. And of several tests one can
# pass by luck: how often, if all arms were equal, is printed. Believe a ranking of two
# corrections only after more runs.
#
# Why can token weights, which left so much bias, help at all? Much of that bias was length,
# and Adam divides length out again. (A clip and the group's advantages stand between a
# gradient's bias and a pass rate as well.)
#
# ## A bound that destroys
#
# Some recipes keep geometric means within a thousandth of 1. Here is such a band on INT4
# rollouts, and beside it a **lottery**: at each step exactly as many responses as the band kept,
# drawn at random from *fresh* rollouts that need no correction at all.

# %% tags=["anchor:starved"]
@dataclass(frozen=True)
class Lottery(Correction):
    luck: torch.Generator | None = None  # without it, a correction that counts
    counts: list = field(default_factory=list)  # responses kept, by step

    def apply(self, *arrays):
        weight, kept = super().apply(*arrays)
        if self.luck:
            drawn = torch.randperm(len(kept), generator=self.luck)
            kept[drawn[self.counts.pop(0):]] = False
        else:
            self.counts.append(int(kept.any(1).sum()))
        return weight, kept


INT4 = replace(FAST, rollout_stack=PRESETS["int4_weights"])
for s in (seed(1), seed(2)):
    band = Lottery("geometric", "mask", 0.999, 1.001, "one")
    arm = {"tight band": replace(INT4, steps=20, correction=band)}
    lost, kept = experiment(policy, task, arm, [s]), band.counts
    lottery = Lottery(luck=noise(s), counts=[*kept])
    arm = {"lottery": replace(FAST, steps=20, correction=lottery)}
    lost |= experiment(policy, task, arm, [s])
    a_step = sum(kept) / len(kept)  # of two updates, 6 groups of 8
    print(f"seed {s}: kept {a_step / 48:.1%}, {a_step / 2:.1f} responses an "
          f"update, none in {kept.count(0)} of {len(kept)} steps; pass rates:")
    for name, (r,) in lost.items():
        print(f"  {name:11}{r.evaluations[0].train:.2f} -> {r.final.train:.2f}")

# %% [markdown]
# Two numbers tell it: the **kept share**, and how many **responses an update** that
# leaves. Such a run is *starved*, and worse: much of what the policy knew is lost, with
# either. The lottery's rollouts are perfect, so this needs no mismatch. Why it happens
# this does not show. A few responses make a noisy gradient, and Adam's steps are of
# full size all the same. Kept ones may be alone in their groups, whose advantages then do not
# sum to zero. Where nothing is kept, Adam's momentum goes on. Before you believe in a
# bound that protects, look at what it keeps.
#
# ## Which policy gets better?
#
# There are two policies, so report two columns. INT4 rollouts, to be deployed as INT4:

# %% tags=["anchor:which-policy"]
deployed = {name: replace(INT4, evaluate_every=6, correction=methods[name])
            for name in ("nothing", "product, truncated at 2")}
both, gap = experiment(policy, task, deployed, [seed(1), seed(2)]), {}
print("pass rate of             trainer's FP32   sampler's INT4    gap")
for name, found in both.items():
    rates = torch.tensor([[(e.train, e.rollout) for e in run.evaluations]
                          for run in found])  # [seeds, evaluations, 2]
    pi, mu = rates[:, 2:].mean((0, 1))  # from step 12 on
    gap[name] = rates[..., 0] - rates[..., 1]
    print(f"{name:24}{pi:14.2f}{mu:17.2f}{pi - mu:+9.2f}")
wider = gap["product, truncated at 2"] - gap["nothing"]
claim("the gap with product weights less that with none (control: at step 0)",
      wider[:, 2:].mean(1).tolist(), at_least=0.02, how="mean",
      control=wider[:, 0].tolist())
print("\nexact expected gradient: cosine with that of J(trainer), J(rollout)")
for name in ("nothing", "product"):
    each = ((g, *w.directions(methods[name])) for g, w in worlds.items())
    print(f"{name:9}", *("  gap {}: {:.3f} {:.3f}".format(*x) for x in each))

# %% [markdown]
# Rounding is part of the sampler. Uncorrected, training pushes what makes *the sampler*
# succeed, as quantisation-aware training does; weighted, it improves the trainer's policy, of
# which INT4 is then the worse copy. The claim is of gaps, each of one set of weights
# under two stacks, over evaluations on the way, and of the mean of two seeds; which row has the
# better *trainer* they can't say. If what sampled is what you deploy, **doing nothing
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
    print(f"{name:25}{c.level:11}{c.operation:9}{c.lower or 0:6.4g} to "
          f"{c.upper:<7.4g}{c.denominator}")

# %% [markdown] tags=["anchor:names"]
# `sequence` is the product here, and elsewhere the geometric mean (lesson 08 says where). With
# *all*, what was dropped counts as zero and the gradient shrinks; with *kept* it does not.
# The same words are other weights: read flags with this table beside them.
#
# ## The ranking, tested
#
# The syllabus ranks true on-policy, trajectory and finer weights by grain, scope, stability and
# speed. In place of adjectives, what this notebook measured:

# %% tags=["anchor:ranking"]
print(f"{'':18}  bias  noise   ESS at gap 0.3   late pass rate, stale rollouts")
own = world(noise(4), gap=0.0).moments(Correction())
for arm, end in final.items():
    m = own if arm == "fresh" else exact[0.3, which.get(arm, arm)]
    print(f"{arm:18}{m.bias:6.3f}{m.noise:7.2f}{m.ess:6.0%}{end!s:>36}")

# %% [markdown]
# - *Grain, scope*: without a bound, token weights have bias where the product has none, and less
#   noise where the gap is large (mostly at smaller gaps, too). Finer is not more of a correction.
# - *Stability*: what was separated above, and no more. On most sets of seeds the masked
#   product's mean is ahead of truncated tokens', by no means always separated, and this is one
#   setting of one task. Larger studies contradict each other: Liu and Li (September 2025) see
#   token weights collapse and masked products survive; DPPO (arXiv 2602.04879) sees truncated
#   weights fail *before* plain ones.
# - *Speed*: on-policy to the bit pays in every step, a decoupled weight one forward pass, a bypass
#   nothing.
#
# ## For your own stack
#
# - Align first, inputs before arithmetic; weigh what is left.
# - Recompute old logprobs, and keep the rollout's: only they show the mismatch.
# - Say level, operation, bounds and denominator of a correction; log what share it keeps, and how
#   many responses an update.
# - With a small mismatch and a small batch use none. And decide which policy you deploy.
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
# Token or mini-batch level: mostly less noise; the bias of prefix and outcome stays. Masked:
# drop what is outside the bounds, which may be the signal, or everything.
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
# 1. 只有两条路：让两个分布相等，或给差异加权；先对齐权重、分词器、模板，再对齐位置、格式和 kernel。
# 2. True on-policy 指训练用的 logprob 与采样策略逐位相等；这里代价不大，但不能让陈旧的数据变新。
# 3. 训练端重算 old logprob 后，第一个 minibatch 的比值恒为 1：这是自己和自己比，不说明两侧一致。
# 4. 权重 p_old/μ 要另算：decoupled 把它放在损失外面，bypass 放在比值里面，两处都放就重复计算。
# 5. TIS、MIS 有两种读法：教学大纲按粒度（轨迹级；token 或 mini-batch 级），多数论文按操作（截断；屏蔽）。
# 6. 穷举表明：连乘权重无偏但噪声大；token 级权重留下多少偏差因世界而异，多半是长度不对而方向大致对；截断以偏差换噪声。
# 7. 不一致很小而 batch 也小时，什么都不做与加权没有差别；batch 很大时偏差才显现出来。
# 8. 连乘权重的离散程度随长度增长，同一个界会把长回答几乎全部丢掉；几何平均不会，但界过窄时，INT4 的回答同样几乎全被丢掉。
# 9. 陈旧 rollout 下不修正，平均通过率明显低于新鲜 rollout（各种子差别很大）；修正平均能补回不少；两种修正孰优，三个种子未必分得出。
# 10. 过紧的屏蔽每步只留下极少回答，会毁掉策略；不做修正时，实际优化的更接近采样策略，量化部署时未必是坏事。
