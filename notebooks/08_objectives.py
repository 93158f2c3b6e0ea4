# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Objectives under mismatch
#
# > **PPO, GRPO, GSPO, DAPO, SAPO: each takes a ratio of a new and an old probability and
# > lets it decide how far a token may be pushed. What if the old one is wrong from the
# > start, because another engine computed it?**
#
# You will put one batch under every objective, see whom a clip stops when its centre is
# wrong, train with it, and take the cause of what happens apart by control runs. Then
# ratios of whole responses: what they average away, what they hide, what they do not repair.
# 45 minutes to read, half a minute to compute.

# %%
from dataclasses import replace
from functools import partial
from statistics import mean

import matplotlib.pyplot as plt
import torch
from tqdm.auto import tqdm

from tinyrl import objectives as O
from tinyrl.advantages import group_advantages, informative
from tinyrl.checkpoints import load
from tinyrl.course import style
from tinyrl.course.claims import claim, seed
from tinyrl.course.lessons.faulty_pairs import Pair, look
from tinyrl.course.lessons.one_update import GROUP, answered, first_update, push
from tinyrl.course.panels.run_plots import plot_runs
from tinyrl.course.panels.runs_panel import QUICK, RunsPanel
from tinyrl.course.predictions import predict, reveal
from tinyrl.kernels import Numerics
from tinyrl.metrics import compare, token_delta
from tinyrl.moe import Router
from tinyrl.stack import PRESETS, Stack, replace_at
from tinyrl.sweeps import experiment
from tinyrl.tasks import CumSum

torch.set_num_threads(1)  # the fast setting for a model this small
style.use()
dense, moe, task = load("sft"), load("moe"), CumSum()


def noise(offset):
    return torch.Generator().manual_seed(seed(offset))


def below(fig, ax, columns):
    shown = ax.get_legend_handles_labels()
    fig.legend(*shown, ncols=columns, loc="outside lower center")
    plt.show()


# %% [markdown]
# ## One batch
#
# The task is that of lesson 01, twelve running totals, and the model the shipped one, which
# has much to learn. Groups of eight answers are sampled by four engines: the trainer's
# own (FP32), BF16, INT4 weights, and one whose temperature is 1.5 while the trainer knows
# nothing of it. `d` is the log ratio before any update, trainer's minus engine's. With old
# logprobs that the trainer recomputes it is 0. A group whose answers all earned the same has
# advantage 0 and pushes nothing. At T = 1.5 most are such, so that engine is asked more.

# %%
engines = {
    "FP32": Stack(), "BF16": PRESETS["bf16"], "INT4": PRESETS["int4_weights"],
    "T = 1.5": replace_at(Stack(), "sampler.temperature", 1.5),
}
many = dict.fromkeys(engines, 32) | {"T = 1.5": 256}
asked = task.prompts(256, noise(10))


def k3(b):
    return compare(b.x.logp_rollout, b.logp.detach(), b.mask).k3


batches = {name: answered(dense, task, asked[:many[name]], engine, noise(11))
           for name, engine in tqdm(engines.items(), leave=False)}
for name, b in batches.items():
    useful = informative(b.reward, GROUP)
    print(f"{name:8} reward {b.reward.mean():.2f}  K3 {k3(b):.1e}  largest |d| "
          f"{b.d.abs().max():.2g}  {useful.sum()} of {len(useful)} groups push")

# %%
turned = ["above 0.9: nearly right", "about a half", "below 0: backwards"]
predict("08.cosine", "T = 1.5, the engine's logprobs as old: the cosine of "
        "PPO's first gradient with the right one?", turned)

# %% [markdown] tags=["anchor:algorithms"]
# ## Every objective in one line
#
# All of them are *ratio, gate, average* (`tinyrl.objectives` has a table with sources; the gate is
# what is done to the ratio, no router's gate):
#
# | | ratio of | gate | average |
# |---|---|---|---|
# | PPO (arXiv 1707.06347), GRPO (2402.03300), Dr. GRPO (2503.20783) | token | clip at 0.8, 1.2 | tokens; responses; constant |
# | DAPO (2503.14476) | token | clip at 0.8, **1.28** (*clip-higher*) | tokens |
# | GSPO (2507.18071) | **response** | clip at 1 - 3e-4, 1 + 4e-4 | responses |
# | SAPO (2511.20347) | token | **soft** | responses |
# | CISPO (2506.13585) | token | capped **weight**, no gradient through it | tokens |
# | REINFORCE | none | none | responses |
#
# The **same** batch under each objective. Once with the right old logprobs, once with those
# that the engine reported: how many tokens that should be pushed get no gradient, and how the
# gradient on the weights has turned (cosine) and grown or shrunk (length).

# %% tags=["anchor:who-moves"]
objectives = {
    "PPO": O.ppo,
    "GRPO": O.grpo, "Dr. GRPO": partial(O.dr_grpo, length=task.max_new),
    "DAPO": O.dapo, "GSPO": O.gspo,
    "GSPO, eps 0.2": partial(O.gspo, eps_low=0.2, eps_high=0.2),
    "SAPO": O.sapo, "CISPO, cap 5": partial(O.cispo, cap=5.0),
    "REINFORCE": O.reinforce,
}
faulty = ["BF16", "INT4", "T = 1.5"]
table = {o: [first_update(f, batches[e])[:3] for e in faulty]
         for o, f in tqdm(objectives.items(), leave=False)}
print(" " * 18, *(f"{e:^22}" for e in faulty))
print(" " * 17, *["  stopped cosine  len."] * 3)
for name, row in table.items():
    print(f"{name:17}", *(f"{s:9.1%}{c:+7.2f}{n:6.2f}" for s, c, n in row))
bad = [b.d[b.mask & (b.A < 0)[:, None]].max() for b in batches.values()]
print(f"largest ratio of a token with A < 0: {max(bad).exp():.2f}")
cosine = table["PPO"][2][1]
reveal("08.cosine", turned[0 if cosine > 0.9 else 2 if cosine < 0 else 1])

# %% [markdown]
# Three families. **Hard clips on tokens** (PPO to DAPO; how they average matters little):
# BF16 does nothing to them, INT4 stops few tokens and takes a large part of the gradient
# with them, T = 1.5 turns it around. **Soft or capped** (SAPO, CISPO): nothing is stopped,
# the gradient nearly keeps its direction and loses length. **GSPO**, at the paper's width,
# stops many already under BF16. At PPO's width of 0.2 it comes nearest to the right gradient
# under INT4, since it hardly clips there. A clip that is switched off looks like this, and nobody
# notices until it is needed. REINFORCE looks at no old logprob, and pays for it
# elsewhere: nothing holds an update back. (Dual clip has no row. It acts on bad tokens whose
# ratio is above 3, and the last line says how far these go here.)
#
# The first row shows how PPO leans on a right old logprob. But *why* do so few
# tokens carry so much of the gradient?

# %% [markdown] tags=["anchor:ppo"]
# ## Whom the clip stops
#
# In this task we know which token of a failed answer was the mistake: the right next total
# follows from the one before. So split tokens by what they are:

# %%
def kinds(b):
    right = b.x.response == task.expert(b.x.prompt, b.x.response)
    good, bad = (b.mask & side[:, None] for side in (b.A > 0, b.A < 0))
    return {"tokens of good answers": good, "right tokens of bad": bad & right,
            "mistakes": bad & ~right}


stopped = {}
fig, axes = plt.subplots(1, 2, sharey=True, figsize=(style.WIDTH, 3.2))
for ax, name in zip(axes, faulty[1:]):
    b = batches[name]
    g = first_update(O.ppo, b).push
    colours = (style.GOOD, style.TRAIN, style.ROLLOUT)
    for (kind, of), colour, dash in zip(kinds(b).items(), colours, "-:-"):
        share = stopped[name, kind] = (g[of] == 0).double().mean().item()
        how = dict(histtype="step", density=True, color=colour, label=kind)
        ax.hist(b.d[of].clamp(-2, 1), 60, range=(-2, 1), ls=dash, **how)
        print(f"{name:8} {kind:22} mean d {b.d[of].mean():+.3f}, d < 0: "
              f"{(b.d[of] < 0).double().mean():4.0%}, stopped {share:.0%}")
    for edge in (0.8, 1.2):
        ax.axvline(torch.tensor(edge).log(), color=style.QUIET, lw=1)
    style.label(ax, f"{name}: log ratio before any update", "d, cut at -2")
axes[0].set(yscale="log", ylabel="density (log scale)")
below(fig, axes[0], 3)

# %% [markdown]
# (Grey lines: 0.8 and 1.2.) A mistake gets sampled mostly where the engine gives it *more*
# probability than the trainer does (`d < 0`). So its ratio is small before anything was
# learned, its advantage is negative, and PPO reads "pushed down far enough". The right tokens
# of the same failed answers have ratios near 1. What is left of a failed answer is thus a push
# against what was right in it. At T = 1.5 the good answers are lost as well: the trainer is
# surer of likely tokens than a flat sampler, their ratios lie above 1.2, and the clip reads
# "pushed up far enough".
#
# Nothing was pushed yet. The clip protects a policy from running away from where its samples
# came from, and it measures from the **centre** that it is given.

# %%
what = "INT4, mistakes that PPO's clip stops (control: right tokens of bad)"
claim(what, stopped["INT4", "mistakes"], at_least=0.4,
      control=stopped["INT4", "right tokens of bad"])

# %% [markdown] tags=["anchor:centre"]
# ## The centre of the clip
#
# Now train. INT4 rollouts, GRPO, 25 steps. Lesson 01 had the first three arms as one run each;
# here are two seeds. *Recomputed* lets the trainer score the samples again, and takes these
# logprobs as old. *Rollout's* saves that pass: the ratio is new over rollout, which is also the
# right importance weight, so on paper nothing is lost. *Clip open* is the same with a band of
# 0.1 to 10. New are the arms that keep the rollout's old logprobs and change the objective (one
# seed for DAPO). All arms have the same engine and prompts, and begin with the same batch;
# later each policy answers for itself.

# %%
learning = ["GSPO and SAPO", "SAPO alone", "GSPO alone", "neither"]
question = "Does GSPO or SAPO learn, with the rollout's logprobs as old?"
predict("08.centre", question, learning)

# %%
base = replace(QUICK, steps=25, rollout_stack=engines["INT4"], prompts=128)
theirs = replace(base, view=O.LossView(anchor="rollout"))
wide = replace(base.recipe, clip_low=0.9, clip_high=9.0)
arms = {
    "GRPO, recomputed": base,
    "GRPO, rollout's": theirs,
    "GRPO, rollout's, clip open": replace(theirs, recipe=wide),
    "GSPO, rollout's": replace(theirs, objective="gspo"),
    "SAPO, rollout's": replace(theirs, objective="sapo"),
}
runs = experiment(dense, task, arms, [seed(0), seed(1)])
dapo = {"DAPO, rollout's": replace(theirs, objective="dapo")}
runs |= experiment(dense, task, dapo, [seed(0)])
fig, axes = plt.subplots(1, 2, figsize=(style.WIDTH, 3.6))
for ax, name in zip(axes, ("reward", "entropy")):
    plot_runs(ax, runs, name)
    style.label(ax, f"{name.capitalize()}: mean of 5 steps", "step")
below(fig, axes[0], 3)
print(f"{'pass rate':27}start   end  as deployed; stopped at step 0")
ends = {}
for name, some in runs.items():
    ends[name] = [r.final.train for r in some]
    first = mean(r.steps[0].clip_fraction for r in some)
    print(f"{name:27}{mean(r.evaluations[0].train for r in some):5.2f} "
          f"{mean(ends[name]):5.2f} {mean(r.final.rollout for r in some):12.2f}"
          f"{first:12.1%}")
born = [r.evaluations[0].train for r in runs["GRPO, recomputed"]]
ok = [mean(ends[name]) > mean(born) for name in list(arms)[3:]]
reveal("08.centre", learning[3 - ok[0] - 2 * ok[1]])

# %% [markdown]
# With the rollout's old logprobs GRPO's pass rate falls to a small part of what it was, after
# some steps in which nothing looks wrong; its **entropy** (the mean of -log p over all it could
# say next: how undecided it is) falls at first and rises later. How far
# the rate falls depends on the seed: the claim below is on the mean of two. Opening the clip,
# or recomputing, saves it. So the samples are good enough, and so is the weight; **the wrong
# centre of the clip is the cause.** (The same happens at T = 1.5: choose it in the panel.)
# SAPO has no border to be stopped at, and learns. GSPO with the paper's width is no way out:
# its band is the narrowest of all. DAPO's upper side is wider, but mistakes leave at the lower
# one; it is one run, so all that counts is how far it stays behind those that learn.
#
# Two things have to be said. Recomputing costs a forward pass, which is why people bypass it.
# And the field does not agree on the anchor: Yao et al. (August 2025) find that the bypass
# clips too much, DPPO (arXiv 2602.04879) that a trust region has to be anchored at the
# rollout. With a mismatch as small as BF16's the two are alike here, as the first table says
# for tokens.

# %%
lost, freed = ([e / b for e, b in zip(ends[name], born)]
               for name in list(arms)[1:3])
what = "rollout's old logprobs: end over start (control: clip open)"
claim(what, lost, at_most=0.5, control=freed)

# %% [markdown] tags=["anchor:panel"]
# The panel, beginning with these runs. Try the rollout stack *temperature 1.5* with either
# kind of old logprobs; then *cispo*; then *bf16*, where nothing happens.

# %%
three = {name: runs[name] for name in list(arms)[:3]}
RunsPanel(dense, task, runs=three, base=theirs, seeds=1)

# %% [markdown] tags=["anchor:sapo"]
# ## Gates, by an injected delta
#
# One token, one advantage; move its log ratio by hand. Above, the gate itself: what stands in
# the ratio's place, the loss over -A. What a gate *does* is its gradient. Below, each
# objective's derivative of the loss by log pi, over -A: 1 is the full push of REINFORCE.

# %%
d = torch.linspace(-2, 2, 401, dtype=torch.float64)
shown = {"PPO": "-", "PPO, dual clip 3": ":", "SAPO": "-", "CISPO, cap 5": "--"}
gates = objectives | {"PPO, dual clip 3": partial(O.ppo, dual_clip=3.0)}
colours = (style.ROLLOUT, style.INK, style.GOOD, style.TRAIN)
fig, axes = plt.subplots(2, 2, sharey=True, figsize=(style.WIDTH, 5.2))
for (top, ax), A in zip(axes.T, (1.0, -1.0)):
    side = torch.full_like(d, A)
    top.plot(d, -O.clip(d.exp(), side, 0.2, 0.2) / A, color=colours[0])
    top.plot(d, -O.soft_gate(d.exp(), side) / A, color=colours[2])
    for (name, dash), colour in zip(shown.items(), colours):
        p = push(gates[name], d, A)
        ax.plot(d, p, dash, color=colour, label=name)
        if name == "SAPO":
            print(f"SAPO, A = {A:+.0f}: push {p[100]:.2f} at d = -1, "
                  f"{p[300]:.2f} at d = 1; largest {p.max():.2f}, at ratio "
                  f"{d[p.argmax()].exp():.1f}")
    style.label(top, f"The gate, A {'>' if A > 0 else '<'} 0")
    style.label(ax, "Its push", "log ratio of the token")
axes[0, 0].set(ylim=(-0.1, 4.1), ylabel="loss over -A")
axes[1, 0].set(ylabel="push, in units of |A|")
below(fig, axes[1, 0], 4)

# %% [markdown]
# A gate's height does not matter; its slope is the push.
#
# - **PPO** follows the ratio and then is a switch: on one side a small delta costs
#   everything, on the other a bad token weighs without bound; **dual clip** ends that.
# - **SAPO** follows the ratio, from below, up to about 2, and then fades. A token to which the
#   engine gave a delta of 1 gets more than its push, one with -1 about a third. This gate cannot
#   tell such a delta from what was learned, either; but it takes no push away altogether.
# - **CISPO** follows the ratio up to its cap. Mistakes (left in the right pictures) keep it.
#
# Soft gates survive a wrong centre, and SAPO is silent about it: it clips nothing, so it has
# no clip fraction that could rise. (CISPO can log how many weights it capped, as TRL's
# `cispo_clip_ratio` does, and says nothing of those below the cap.) A hard clip's fraction
# *before the first update* is an alarm for free. So a soft gate replaces no check of logprobs;
# beside it, watch K3.

# %% [markdown] tags=["anchor:ratio"]
# ## One ratio for a response
#
# GSPO's ratio is the geometric mean of the token ratios,
# $$s = \exp\Big(\frac{1}{|y|}\sum_t \log\frac{\pi(y_t)}{\pi_\text{old}(y_t)}\Big),$$
# clipped as one: **the response is the unit**. Its neighbour is the product, the weight that
# importance sampling really asks for, whose logarithm is the sum and not the mean. (verl and
# slime call the product "sequence", AReaL and ms-swift the mean. TRL means both: the mean by
# `importance_sampling_level="sequence"`, the product by `vllm_importance_sampling_mode`.)
# Answers here have 13 tokens. For longer ones, take several: an episode of k answers.

# %% tags=["anchor:length"]
pair = Pair(engines["INT4"])
arrays = look(dense, task, pair, noise(20), 2048, k=0).arrays
long, real = token_delta(*arrays), arrays[2]
whole = long[real.all(1)]
print("tokens  sd of log ratio: token  product  geometric   1% of products <")
spread = {}
for k in (1, 2, 4, 8, 16):
    episodes = whole[: len(whole) // k * k].reshape(-1, k * whole.shape[1])
    total, average = episodes.sum(1), episodes.mean(1)
    spread[k] = total.std().item(), average.std().item()
    print(f"{episodes.shape[1]:6} {whole.std():24.3f} {spread[k][0]:8.2f} "
          f"{spread[k][1]:10.4f} {total.quantile(0.01).exp():24.1e}")
print(f"mean log of the geometric one, at every length: {whole.mean():+.4f}")
grown, shrunk = (spread[16][i] / spread[1][i] for i in range(2))

# %% [markdown]
# Token noise is nearly independent, so the sum spreads like the root of the length and the
# mean shrinks like it. The product **explodes**: the longest span many powers of ten, and a
# few responses would carry all the weight. The geometric mean settles down: **less variance**,
# which is what GSPO is for. But it is no unbiased weight, and look at the last line: the
# *mean* of the log ratio, minus the KL, does not shrink with length. What has one sign
# everywhere is not averaged away.

# %%
what = "spread of the geometric log ratio, 16 times as long (control: product)"
claim(what, shrunk, between=(0.18, 0.36), control=grown)

# %% [markdown] tags=["anchor:one-token"]
# And it **hides**. Take the token with the largest |d| of that batch:

# %%
row = long.abs().amax(1).argmax()
n, d_row = int(real[row].sum()), long[row]
token = d_row[d_row.abs().argmax()]
border = torch.tensor(1 + 4e-4 if token > 0 else 1 - 3e-4).double().log()
print(f"its ratio {token.exp():.3f}; its response of {n} tokens: product "
      f"{d_row.sum().exp():.3f}, geometric {(d_row.sum() / n).exp():.3f}")
print(f"alone in a response of {token / border:,.0f} tokens or more it would "
      f"not leave GSPO's band, whose border on its side is {border.exp():.4f}")
b = batches["INT4"]
for name in ("CISPO, cap 5", "GSPO, eps 0.2", "PPO"):
    g = first_update(objectives[name], b).push
    size = g.abs()[b.pushed.all(1)]  # of responses of full length
    share = (size.amax(1) / size.sum(1).clamp(1e-12)).max()
    part = ((size == 0).any(1) & (size > 0).any(1)).double().mean()
    print(f"{name:14} largest token: up to {share:3.0%} of a response's push; "
          f"stopped in part: {part:.0%} of responses")

# %% [markdown] tags=["anchor:whole"]
# Under GSPO **no token dominates**: all of a response have one weight, and it is stopped as
# a whole or not at all. The other side of that: a broken token is pushed like its
# neighbours. A geometric mean is a poor detector of a few broken tokens, a maximum or the
# product a good one.
#
# ## A width of another scale
#
# PPO's 0.2 is for tokens. What share of responses does GSPO stop before any update, by the
# width of its band?

# %% tags=["anchor:width"]
narrow = batches["BF16"].d, batches["BF16"].mask
outside, widths = {}, [3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.2]
fig, ax = plt.subplots(figsize=(style.WIDTH, 3.2))
print(f"{'band':8}", *(f"{width:6g}" for width in widths))
for name, colour in zip(faulty, (style.GOOD, style.TRAIN, style.ROLLOUT)):
    b = batches[name]
    s = O.ratio(b.d, b.mask, "geometric")[:, 0]
    far = ((s - 1) * b.A.sign())[b.A != 0, None]  # in the direction of A
    outside[name] = (far > torch.tensor(widths)).double().mean(0).tolist()
    ax.semilogx(widths, outside[name], "o-", color=colour, label=name)
    print(f"{name:8}", *(f"{share:6.1%}" for share in outside[name]))
ax.axvspan(3e-4, 4e-4, color=style.QUIET, alpha=0.3, lw=0, label="paper's band")
style.label(ax, "Stopped by GSPO before any update", "band", "responses")
below(fig, ax, 4)
length = narrow[1].sum(1).double().mean()
fits = length * O.at_level(*narrow, "geometric")[:, 0].var() / (3e-4 / 2) ** 2
print(f"two deviations of BF16's noise fit into 3e-4 from about {fits:,.0f} "
      f"tokens on; answers have {length:.0f}")
what = "responses that GSPO stops at 0.2, BF16 (control: at 3e-4)"
claim(what, outside["BF16"][-1], at_most=0.01, control=outside["BF16"][0])

# %% [markdown]
# At 0.2 GSPO never clips under BF16 and hardly ever under INT4: whoever changes the objective
# and keeps PPO's width has switched the clip off. Only a fault as gross as T = 1.5 is seen
# there. At the paper's width even BF16 stops many, *here*, where answers are short. Rounding
# averages out over a long response (see the printed length), the mean of INT4 at no length.
# The paper has long responses, and argues that the ratio of a response tolerates the
# rollout's logprobs: a statement about length and mismatch, and both can be measured before
# a run.
#
# ## GSPO, R3 and equal formats, on a mixture
#
# GSPO was made so that the ratio has the unit of the reward, a whole response, and it is
# credited with steadying mixtures of experts: one update changes which experts a token takes,
# token ratios jump, and a mean over a long response does not. The shipped mixture, rollouts
# in BF16 with a BF16 router. Three repairs, each on or off: **formats aligned** (FP32 as in
# the trainer; the router stays BF16), **R3** (lesson 07), **GSPO** in PPO's place.

# %% tags=["anchor:layers"]
replay = Stack(router=Router(replay="rollout"))
sides = {"BF16": Stack(Numerics("bf16", "bf16", router="bf16")),
         "aligned": Stack(Numerics(router="bf16"))}
print("formats  routes      K3      |d|    mean     PPO    cos    GSPO    cos")
for side, engine in sides.items():
    for routes, trainer in (("own", Stack()), ("R3", replay)):
        for at in tqdm((40, 50), leave=False):
            of = moe, task, task.prompts(16, noise(at)), engine, noise(at + 1)
            b = answered(*of, trainer)
            s = O.at_level(b.d, b.mask, "geometric").abs().max()
            (p, cp), (q, cq) = (first_update(f, b)[:2] for f in (O.ppo, O.gspo))
            print(f"{side:9}{routes:6} {k3(b):.1e} {b.d.abs().max():8.4f}"
                  f"{s:8.4f}{p:8.1%}{cp:+7.3f}{q:8.1%}{cq:+7.3f}")

# %% [markdown] tags=["anchor:moe"]
# Two batches each; read one column at a time. **K3**: R3 takes the flips away, and then equal
# formats lower what is left by far. Without R3 a few flips of the BF16 router can be nearly
# all of K3, whatever the formats (lesson 07: no number to rank by). Formats alone lower K3
# here too; how far is decided by the flips that are left. GSPO has no row here, since K3 is
# computed before an objective is chosen. **The largest |d|** of a token shrinks in the
# response's **mean** by the length: that is why a ratio of a response is steadier where
# experts flip, and the longer the response the more. **PPO** and **GSPO**, the share that each
# stops, with the cosine of its gradient to the right one: PPO stops next to nothing at this
# mismatch; GSPO with its narrow band many, and few once formats agree.
#
# So each works on another layer: formats on the *arithmetic*, R3 on the *path* through the
# network, GSPO on the *loss*. And an honest result: at this size PPO's gradient is hardly
# touched in any row. The mismatch falls; that a run's reward would move is not to be
# expected, and lesson 07 saw no such thing.

# %% [markdown] tags=["anchor:no-cure"]
# **GSPO does not remove the mismatch.** The training runs above say it again: K3 of the
# INT4 rollouts, mean of the first three steps, in which all policies are nearly the same one.
# (Later ones prove nothing: a policy that falls apart changes its K3 by that.)

# %%
for name, some in runs.items():
    early = [r.series("mismatch.k3")[:3].mean().item() for r in some]
    print(f"{name:27} K3 by seed:", *(f"{x:.3f}" for x in early))

# %% [markdown] tags=["anchor:groups"]
# ## Advantages of a group
#
# GRPO divides by the group's deviation. With the *sample* deviation, which verl and TRL take,
# a lone success among n gets (n - 1)/sqrt(n), and a lone failure as much with a minus.

# %%
print("answers in a group; a lone success: its advantage, that of the others")
for n in (4, 8, 16, 64):
    R = 1.0 * (torch.arange(n) == 0)
    for std in ("sample", "none"):
        A = group_advantages(R, n, std=std)
        print(f"{n:10}, std: {std:6}{A[0]:14.2f}{A[1]:23.2f}")

# %% [markdown]
# So where success is rare, a few samples **dominate** a batch. If the old logprobs of just
# these are wrong, so is most of the gradient: at T = 1.5 nearly all of their tokens were
# stopped above, and the many others still push down. Where half succeed, nobody dominates: the
# last column below says which share of all |A| lies in groups with a lone answer.
#
# ## Which groups are left
#
# DAPO drops groups whose rewards are all equal (**dynamic sampling**) and samples others. The
# rewards are those of the *engine's* answers, so the engine decides what is trained on. The
# same 32 prompts, eight answers each; FP32 twice (*FP32 again*), to see what chance alone
# does. *All but one alike* are groups with one success or with one failure.

# %%
most = ["about a tenth, as with FP32", "about half", "more than 0.8"]
predict("08.lone", "T = 1.5: how much of all |A| lies in groups in which all "
        "answers but one earned the same?", most)

# %% tags=["anchor:dapo"]
again = answered(dense, task, asked[:32], Stack(), noise(15))
fig, ax = plt.subplots()
colours = (style.INK, style.QUIET, style.GOOD, style.TRAIN, style.ROLLOUT)
home = informative(batches["FP32"].reward, GROUP)
first = slice(32 * GROUP)  # the prompts that all engines were asked
all_of_them = {"FP32 again": again} | batches
for (name, b), colour in zip(all_of_them.items(), colours):
    wins = b.reward[first].view(-1, GROUP).sum(1)
    counts = torch.bincount(wins.long(), minlength=GROUP + 1) / len(wins)
    how = dict(color=colour, label=name, lw=5 if name == "FP32" else 1.8)
    ax.plot(range(GROUP + 1), counts, "o-", ms=4, **how)
    left = informative(b.reward[first], GROUP)
    dropped = (home & ~left).sum() / home.sum()
    lone = (wins == 1) | (wins == GROUP - 1)
    size = b.A[first].abs().view(-1, GROUP).sum(1)
    share = (size[lone].sum() / size.sum()).item()
    print(f"{name:10} stay {left.double().mean():4.0%}, of FP32's dropped "
          f"{dropped:4.0%}, all but one alike: {share:4.0%} of all |A|")
ax.legend()
style.label(ax, "What a group of eight earned", "successes", "share of groups")
plt.show()
reveal("08.lone", most[(share > 0.3) + (share > 0.8)])  # T = 1.5 was last

# %% [markdown]
# Compare with *FP32 again*: INT4 drops about as many groups as chance does, and these groups
# do not tell it apart; T = 1.5 drops most, and what it leaves are mostly lone successes. A reward is
# right or wrong, and no ratio or weight enters it: what an engine spoils there is gone before
# the loss. Resampling fills the batch with the prompts that survive, easy ones or lucky ones,
# and it takes as many more prompts as groups are dropped. So **DAPO still needs aligned
# logprobs**, twice: for its ratios (the first table: its gradient is PPO's, a little less
# stopped), and for the samples behind its rewards.
#
# ## For your own stack
#
# - Log the clip fraction *before the first update* of a batch. Above 0, old and new logprobs come
#   from two computations.
# - Recompute old logprobs. If you bypass that pass, know that the clip then measures from the
#   rollout's policy.
# - A new objective needs a new width: GSPO's band is hundreds of times narrower than PPO's.
# - A soft gate raises no alarm. Log K3 beside it.
# - Log how many groups are dropped, and how many have one success alone.
#
# No objective makes the two logprobs agree: that is done by formats, kernels, templates, samplers
# and routers (lessons 03 to 07), and by weights for what is left (lesson 09). Lesson 12 has the
# five algorithms in one table, as an interview asks for them.
#
# ## Check yourself
#
# Answer aloud, then open.
#
# <details><summary>A clip fraction above 0 before the first update. What does it tell?</summary>
#
# That old and new logprobs come from two different computations. With recomputed ones it is
# exactly 0 there, in the first mini-batch.
# </details>
#
# <details><summary>Why does a clip with the rollout's centre stop the mistakes of failed
# answers, and not their right tokens?</summary>
#
# Most were sampled because the engine liked them more than the trainer does: ratio below
# 1 - eps with A < 0. Right tokens lie near 1.
# </details>
#
# <details><summary>Which two runs show that the centre of the clip is the cause, and not bad
# samples?</summary>
#
# The same engine with old logprobs recomputed; the rollout's kept and the clip opened. Both
# learn.
# </details>
#
# <details><summary>GSPO with eps 0.2: what is wrong?</summary>
#
# The band is PPO's. A mean over a response moves far less, hardly anything is ever clipped,
# and a trust region is claimed that is not there.
# </details>
#
# <details><summary>GSPO, R3, equal formats: which layer does each repair, and which of them
# changes K3?</summary>
#
# The loss; the path through the experts; the arithmetic. K3 is changed by the last two.
# </details>
#
# **Now write it yourself**: [lab 08](../labs/lab08_objectives/lab08_objectives.ipynb), eight
# functions, each checked at once.
#
# ## Where to read on
#
# - PPO: arXiv 1707.06347; dual clip: arXiv 1912.09729; GRPO: arXiv 2402.03300
# - GSPO, and why it needs no routing replay: arXiv 2507.18071
# - DAPO: arXiv 2503.14476; Dr. GRPO: arXiv 2503.20783; verl up to 0.7.0 did not divide its
#   average by B, the number of responses: verl#3741
# - SAPO: arXiv 2511.20347; CISPO: arXiv 2506.13585, and its cap in ScaleRL: arXiv 2510.13786
# - Which anchor: DPPO, arXiv 2602.04879; decoupled PPO, arXiv 2110.00641
# - Old and new differ at step 0 with a learning rate of 0: RLinf#1534
#
# ## 中文小结
#
# 1. 各目标都由“比值、门、平均”三步组成；比值里的旧 logprob 若来自另一个引擎，更新之前就已偏离 1。
# 2. 硬裁剪量的是离中心的距离：中心错了，尚未更新，就被判为更新已到界限。
# 3. 失败回答里的错误 token 大多是引擎高估的 token：比值低于 0.8、advantage 为负，恰好被裁剪。
# 4. 剩下的梯度在压低失败回答里原本正确的 token，策略因此被“教坏”：通过率大多跌到接近 0，熵先降后升。
# 5. 两个对照（同一引擎、同样的题目）：重算旧 logprob，或保留采样端 logprob 但放开裁剪；两者都能学，说明坏的是裁剪中心。
# 6. GSPO 用几何平均：方差随长度下降，没有单个 token 能主导；但同号的偏差不会被平均掉，个别异常 token 会被平均值掩盖。
# 7. GSPO 的裁剪宽度是 3e-4 量级；照搬 0.2 等于不裁剪，而论文宽度在短回答上，连 BF16 下都有许多回答被裁剪。
# 8. SAPO、CISPO 不切断任何 token 的梯度，中心错了也能学；但 SAPO 没有会上升的裁剪比例，不会报警：软门代替不了一致性检查。
# 9. 成功稀少时，GRPO 的组内标准化会放大个别样本的作用；奖励取决于采样引擎生成的回答，动态采样丢掉哪些组也由它决定，DAPO 仍需对齐。
# 10. 格式对齐管数值，R3 管路由，GSPO 管损失；前两者能减小不一致，GSPO 不能；在这个规模上，奖励也没有因此改变。
