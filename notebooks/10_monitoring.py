# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Measuring and monitoring
#
# > **The reward rises, K3 is small, no alarm has rung. Served, the model fails. Which
# > number would have told you, how sure would it have been, and which numbers could not?**
#
# Every number on a dashboard sees some faults and is blind to others. You will inject
# faults with a known cause, look at each with every number and an interval, watch alarms
# that others have published during live training, and end with a run that is clean on
# every chart and wrong where it is served. 45 minutes to read, half a minute to compute.

# %%
import textwrap
from dataclasses import replace

import matplotlib.pyplot as plt
import torch
from tqdm.auto import tqdm

from tinyrl import objectives as O
from tinyrl.checkpoints import load
from tinyrl.correction import Correction
from tinyrl.course import style
from tinyrl.course.claims import claim, seed
from tinyrl.course.lessons.alarm_rings import draw_rings, rung, told
from tinyrl.course.lessons.faulty_pairs import Pair, in_parts, look, measured
from tinyrl.course.lessons.one_update import GROUP, answered, first_update
from tinyrl.course.lessons.visibility import draw_sights
from tinyrl.course.lessons.watched_runs import live, serve
from tinyrl.course.panels.runs_panel import QUICK, RunsPanel
from tinyrl.course.predictions import predict, reveal
from tinyrl.framework_names import FRAMEWORKS, TWO_MEANINGS, translate
from tinyrl.intervals import intervals
from tinyrl.kernels import Kernels
from tinyrl.metrics import token_delta
from tinyrl.monitoring import apart, monitor
from tinyrl.scoring import score
from tinyrl.stack import PRESETS, Stack
from tinyrl.sweeps import experiment
from tinyrl.tasks import CumSum
from tinyrl.trainer import Trainer, generate, pass_rate

torch.set_num_threads(1)  # the fast setting for a model this small
style.use()
policy, task = load("sft"), CumSum()
BF16, INT4 = PRESETS["bf16"], PRESETS["int4_weights"]
ENGINE = replace(BF16, kernels=Kernels(attention="online", tensor_parallel=2))


def noise(offset):
    return torch.Generator().manual_seed(seed(offset))


def sampler(**fields):
    return replace(Stack(), sampler=replace(Stack().sampler, **fields))


# %% [markdown]
# ## Ten pairs, eight faults
#
# As lesson 01 has it, $\delta = \log p_{train} - \log p_{rollout}$ of a sampled token,
# $\rho = e^\delta$, and $\Delta$ is the sum of $\delta$ over a response. Each pair below is
# a rollout and a trainer. In two of them nothing is wrong: FP32 on both sides, and **BF16**
# on both sides with other kernels, as any real stack has. The latter is what a fault has to
# stand out from. The last two faults are of bookkeeping: logprobs that come one column
# late, and one request in 256 that was answered after another one's prompt (a hit
# in the prefix cache that was none).

# %%
twelve = Trainer(load("sft"), task, generator=noise(1), recipe=QUICK.recipe)
for _ in tqdm(range(12), leave=False):
    twelve.step()
newer = twelve.model
raw = sampler(top_p=0.9, logprobs="raw")
pairs = {
    "FP32, FP32": Pair(),
    "BF16, BF16": Pair(ENGINE, trainer=BF16),
    "FP8 KV cache": Pair(PRESETS["fp8_kv"]),
    "INT4 weights": Pair(INT4),
    "temperature 1.1": Pair(sampler(temperature=1.1)),
    "top-p 0.9": Pair(sampler(top_p=0.9)),
    "top-p 0.9, raw": Pair(raw),
    "12 updates late": Pair(weights=newer),
    "one column late": Pair(slip="column"),
    "1 prompt in 256": Pair(slip="prompt"),
}
batches = {name: [look(policy, task, pair, noise(100 + b)) for b in range(3)]
           for name, pair in tqdm(pairs.items(), leave=False)}

# %%
choices = {"K1": "k1", "K3": "k3", "mean |delta|": "mean_abs"}
question = ("Logprobs come one column late, so each token is compared with its "
            "neighbour. Which number is smallest?")
predict("10.late", question, list(choices))

# %% [markdown]
# Three batches of every pair, every number with its 90 % interval: a **bootstrap over
# responses**, which draws whole responses again and again and computes the number anew. A
# number *sees* a fault if its interval lies apart from that of the healthy pair, and
# farther from what equal policies have, on all three batches. It is *drowned* if it stands
# out only from two FP32 engines, which differ in their last bits. Else it is *blind*. Extremes
# have no bootstrap (no draw goes beyond the sample); their interval is the range of three
# batches. Where equal policies have 1, what is written is how much is missing, 1 - x.
#
# | row | what it is |
# |---|---|
# | mean_abs, p50_abs, p99_abs, max_abs | mean, median, 99th percentile, largest of $\lvert\delta\rvert$ over tokens |
# | k1, k3 | estimates of the KL a token, see below |
# | ratio_mean, clip_fraction | mean of $\rho$; share of tokens with $\rho$ outside 0.8 to 1.2 |
# | ess, chi2 | weights $\rho$ of tokens: effective sample size, as a share; mean of $\rho^2$, less 1 |
# | log_ppl_diff | perplexity gap: mean over responses of $-\Delta / T$, T its tokens |
# | prob_corr | correlation of both sides' probabilities (not their logarithms) |
# | seq_walk, seq_max_abs | root of the mean of $\Delta^2 / T$; largest $\lvert\Delta\rvert$ |
# | ess_seq, chi2_seq | as ess and chi2, of $e^\Delta$, one weight a response |
# | reward_corr | correlation of $\Delta$ and the reward, over responses |
# | top1_agreement, topk_overlap | share of tokens whose likeliest word is the same; share of the 4 likeliest that both have |

# %%
numbers = (
    "mean_abs p50_abs p99_abs max_abs k1 k3 ratio_mean clip_fraction ess chi2 "
    "log_ppl_diff prob_corr seq_walk seq_max_abs ess_seq chi2_seq reward_corr "
    "top1_agreement topk_overlap").split()
found = {name: measured(looks, noise(200)) for name, looks in batches.items()}

# %% tags=["anchor:matrix"]
fig, ax = plt.subplots(figsize=(style.WIDTH, 5.6))
draw_sights(ax, found, numbers, equal="FP32, FP32", healthy="BF16, BF16")
fig.supxlabel("dark: sees it; light: drowned in BF16's rounding; white: blind")
plt.show()
late = found["one column late"]
reveal("10.late", min(choices, key=lambda x: abs(late[choices[x]][0].estimate)))

# %% [markdown]
# Read it by columns. **FP8, INT4, a temperature, stale weights**: whatever looks at the size
# of delta sees them; where signs cancel (K1, the perplexity gap) FP8 is lost in the noise of
# a batch. **One column late** is the largest error of all, and K1, the perplexity gap and
# every mean over responses are blind: moved by one column, a response's logprobs have nearly
# the same sum. **One prompt in 256**: every mean is a few tokens' doing, so its interval
# reaches down to nothing; only the extremes see it. **Top-p with raw logprobs**: two engines
# that agree to the last bits about a distribution that nobody sampled from. Only the set of
# likeliest tokens sees that, and only if the engine hands it over after the cut.
#
# And by rows: **agreement of the top token** sees nothing here, not even INT4.
# White is a statement about a batch of this size: a larger one has narrower intervals.

# %% tags=["anchor:token-kl"]
def k1_over_size(pair):
    # |K1| over the root mean square of delta, of each batch.
    both = zip(found[pair]["k1"], found[pair]["k2"])
    return [abs(k1.estimate) / (2 * k2.estimate) ** 0.5 for k1, k2 in both]


claim("one column late: |K1| over the root mean square delta (control: top-p)",
      k1_over_size("one column late"), at_most=0.05, how="every", of="batches",
      control=k1_over_size("top-p 0.9"))
print(f"{'':14}{'K1':>11}{'K2':>11}{'K3':>11}   K3 naive, float32")
for name in ("FP32, FP32", "BF16, BF16", "INT4 weights"):
    roll, mine, mask = batches[name][0].arrays
    d = (mine - roll)[mask]
    print(f"{name:14}", *(f"{found[name][k][0].estimate:10.1e}"
                          for k in ("k1", "k2", "k3")),
          f"  {(d.exp() - 1 - d).mean():10.1e}")

# %% [markdown] tags=["anchor:approx-kl"]
# **K1, K2, K3** estimate $KL(\mu \| \pi)$ from tokens of $\mu$: $-\delta$, $\delta^2/2$,
# $e^\delta - 1 - \delta$, averaged. K1 is unbiased and its signs cancel; K2 is biased where
# delta is large; K3 is unbiased and never negative. An "approx KL" of a log is one of them
# (which one, see below), so ask what it can hide. A negative one is K1, by chance or because
# deltas have the wrong sign. If delta itself is wrong, the estimate is precise and wrong.
#
# The last column is the same formula in float32, where $e^\delta$ near 1 has steps of 1.2e-7.
# For the FP32 pair it prints rounding noise, with either sign. In float64, by `expm1`, a K3
# of 1e-9 is a number like any other.
#
# ## A mean, a percentile, the largest
#
# Left, for each size, the share of tokens whose |delta| is larger; dots are means. Right,
# the distribution of the ratio.

# %% tags=["anchor:percentiles"]
fig, (left, right) = plt.subplots(1, 2, figsize=(style.WIDTH, 3.6))
looks = {"FP8 KV cache": style.GOOD, "INT4 weights": style.TRAIN,
         "top-p 0.9": style.INK, "one column late": style.ROLLOUT,
         "1 prompt in 256": style.BAD}
for name, colour in looks.items():
    arrays = batches[name][0].arrays
    d = token_delta(*arrays)[arrays[2]]
    x = d.abs().sort(descending=True).values.clamp(min=1e-8)
    share = torch.arange(1, len(x) + 1) / len(x)
    left.loglog(x, share, color=colour, label=name)
    at = d.abs().mean()
    left.plot(at, (d.abs() > at).double().mean(), "o", color=colour)
    right.hist(d.exp().clamp(0.5, 1.5).numpy(), bins=50, range=(0.5, 1.5),
               color=colour, histtype="step", log=True)
left.axhline(0.01, color=style.QUIET, ls=":")
left.set_xlim(1e-5, 20)
style.label(left, "Tail of |delta| (dotted: 99 %)", "x, nats", "above x")
style.label(right, "Ratio (beyond 0.5, 1.5: at the ends)", "ratio", "tokens")
fig.legend(*left.get_legend_handles_labels(), ncols=3,
           loc="outside lower center")
plt.show()

# %% [markdown] tags=["anchor:ratio-distribution"]
# - The **mean** of |delta| is size times frequency; it can't tell one bad request in 256
#   from a little noise everywhere.
# - The **median** says what a typical token has. Most tokens of a trained policy are nearly
#   certain, and certain tokens hardly move: the median may look fine at any mean.
# - The **99th percentile** sees the tail, and nothing rarer than one token in a hundred.
# - The **largest** sees the rarest. It grows with the batch and one odd token moves it, so
#   compare batches of equal size, and look *which* token it was.
# - The **ratio's distribution** shows shape: one-sided (top-p: all at the left of 1), two
#   tails (formats), a spike at the end (bookkeeping). Its mean is near 1 under any fault
#   that reports the probabilities it sampled with, and cuts nothing:
#   $E_\mu[\pi / \mu] = 1$ if $\mu$ can sample all that $\pi$ can.
#
# ## How sure is a number?
#
# Tokens of a response share a prompt and a prefix. A bootstrap that draws tokens takes them
# for independent:

# %% tags=["anchor:intervals"]
for name in ("12 updates late", "temperature 1.1", "1 prompt in 256"):
    arrays = batches[name][0].arrays
    apart_ = [x[arrays[2]][:, None] for x in arrays]  # each token a "response"
    by = [intervals(*x, generator=noise(201), resamples=300)["mean_abs"]
          for x in (arrays, apart_)]
    print(name, "mean |delta| {:.4f}: by response [{:.4f}, {:.4f}], by token "
          "[{:.4f}, {:.4f}]".format(*by[0], *by[1][1:]))

# %% [markdown]
# Where tokens err one by one it makes no difference, as in the first two. Where a whole
# response is off, its tokens are one piece of evidence, not thirteen: the second interval is
# far too narrow, and looks like proof.
#
# An interval has a limit of its own: it knows what was sampled. For whole responses the
# weight $w = e^\Delta$ has mean 1 *exactly*, so here we know the truth that an interval
# should hold, nine times out of ten. We let the rollout sample at a temperature that the
# trainer ignores: $\mu$ is sharper than $\pi$, and answers that $\mu$ hardly ever gives
# carry huge weights.

# %% tags=["anchor:rare"]
held = {}
sharp = {f"T = {t}": sampler(temperature=t) for t in (0.8, 0.5)}
for name, engine in tqdm([("BF16", BF16), *sharp.items()], leave=False):
    whole = look(policy, task, Pair(engine), noise(300), 1600, k=0).arrays
    parts, m = in_parts(whole, 32, noise(202)), monitor(*whole)
    ends = [part["seq_ratio_mean"] for part in parts]
    held[name] = sum(x.low <= 1 <= x.high for x in ends) / len(ends)
    ends.sort(key=lambda x: x.high - x.low)
    print(f"{name}: the first three batches of 32")
    for part in parts[:3]:
        print("  ", *(f"{n} {{:.2f}} [{{:.2f}}, {{:.2f}}]  ".format(*part[n])
                      for n in ("seq_ratio_mean", "ess_seq", "chi2_seq")))
    print(f"   all {len(ends)} together: ess {m['ess_seq']:.2f}, "
          f"chi2 {m['chi2_seq']:.2f}; intervals holding 1: {held[name]:.0%};\n"
          "   one of median width: {:.3f} [{:.3f}, {:.3f}]".format(*ends[25]))
claim("share of intervals that hold the mean weight, T = 0.5 (control: BF16)",
      held["T = 0.5"], at_most=0.6, control=held["BF16"])

# %% [markdown]
# At temperature 0.5 most batches have a narrow interval around a third of the truth (last
# line), and an **effective sample size near 1**: all responses in hand have nearly equal
# weights, since those that would have decided are not there. Once in a while one turns up,
# and the same number falls to a few hundredths. So ESS and chi2 of whole responses are
# *evidence when they are bad and none when they are good*. No resampling mends that. The
# intervals of tokens' numbers can be trusted, and those of responses where $|\Delta|$ is well
# below 1 (first block).
#
# ## The likeliest tokens

# %% tags=["anchor:top-k"]
which = ("top1_agreement", "topk_overlap", "topk_left", "topk_entered")
print(" " * 16, *(f"{number:>15}" for number in which))
for name in ("BF16, BF16", "INT4 weights", "temperature 1.1", "top-p 0.9, raw"):
    print(f"{name:16}", *(f"{found[name][n][0].estimate:15.4f}" for n in which))

# %% [markdown]
# Engines return the k likeliest tokens with their logprobs; k = 4 of our 16 words here. The
# *first* agrees under nearly every fault, since sure tokens stay sure. *Overlap* counts,
# and unlikely tokens come and go (BF16). *Left* is the rollout's probability of those that
# the trainer lacks, *entered* the other way round: under top-p the trainer has them, and
# the rollout will never say them. A temperature keeps every order: blind.
#
# ## Reward against ratio: whose reward is in the log?
#
# The logged reward is that of the policy that **sampled**. If $\Delta$ goes with the reward,
# the trainer's own is another: $J_\pi - J_\mu = Cov_\mu(e^\Delta, R)$, estimated below as
# `reward_gap`. Beside it, the gap of both policies' pass rates, measured on 1,024 fresh
# prompts, and its own 90 % interval.

# %% tags=["anchor:reward-ratio"]
own = pass_rate(policy, task, Stack(), noise(401), 1024)
fig, axes = plt.subplots(1, 3, sharey=True, figsize=(style.WIDTH, 2.6))
three = "INT4 weights", "temperature 1.1", "top-p 0.9, raw"
for ax, name in zip(axes, three):
    arrays, more = batches[name][0]
    R, Delta = more["rewards"], token_delta(*arrays).sum(1)
    low = min(Delta.min().item(), -0.1)
    how = dict(bins=30, range=(low, -low), histtype="step")
    for value, colour in ((0, style.BAD), (1, style.GOOD)):
        ax.hist(Delta[R == value].numpy(), color=colour, label=value, **how)
    style.label(ax, name, "Delta, nats", "responses" * (ax is axes[0]))
    r, gap = (found[name][n][0] for n in ("reward_corr", "reward_gap"))
    theirs = pass_rate(policy, task, pairs[name].engine, noise(402), 1024)
    error = (own * (1 - own) / 1024 + theirs * (1 - theirs) / 1024) ** 0.5
    print(f"{name:16} correlation {r.estimate:+.2f}; gap estimated "
          f"{gap.estimate:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}], "
          f"measured {own - theirs:+.3f} ± {1.64 * error:.3f}")
axes[0].legend(title="reward")
plt.show()

# %% [markdown]
# INT4 and a higher temperature make errors that the trainer would not make: it rates wrong
# answers lower than the sampler did, and its own reward is higher than the log says. Under
# top-p the log is far too *good*, and the estimated gap is near zero: the wrong
# answers that $\pi$ would give lie outside the cut, nothing in the batch stands for them. A
# weight repairs what was sampled in the wrong proportion, never what was not sampled.
#
# ## What a correction dropped
#
# "Dropped 3 %" may be tokens, responses that lost one, or responses of which nothing is left.

# %% tags=["anchor:dropped"]
masks = {"token 0.5..2": Correction("token", "mask", 0.5, 2.0),
         "sequence 0.5..2": Correction("sequence", "mask", 0.5, 2.0),
         "geometric .999..1.001": Correction("geometric", "mask", 0.999, 1.001)}
print(f"{'tokens/some/whole':18}", *(f"{name:>21}" for name in masks))
for name in ("BF16, BF16", "FP8 KV cache", "top-p 0.9", "one column late"):
    roll, mine, mask = batches[name][0].arrays
    cells = []
    for fix in masks.values():
        m = monitor(roll, mine, mask, kept=fix.apply(mine, roll, mask)[1])
        shares = (m[n] for n in ("dropped", "dropped_some", "dropped_whole"))
        cells.append(" / ".join(f"{x:4.0%}" for x in shares))
    print(f"{name:18}", *(f"{c:>21}" for c in cells))

# %% [markdown]
# The share dropped tells as much of the mask as of the fault. A tight geometric band throws
# part of a *healthy* BF16 batch away; a product over a response drops a top-p batch whole,
# where no token is off by more than a tenth; and the worst fault of all passes the
# sequence mask. Read it as "how much of the batch still trains", beside a delta.

# %%
sums = ["about their sum", "about the larger", "well below the larger"]
question = ("Mismatch: a sampler at temperature 0.8. Staleness: twelve "
            "updates, which sharpen the policy, too. K3 of both is ...")
predict("10.cancel", question, sums)

# %% [markdown]
# ## Two causes apart
#
# $p_{new} / \mu = (p_{old} / \mu)(p_{new} / p_{old})$: **mismatch** times **staleness**, if *old*
# are the weights that the rollout had. (In lesson 09 they were the trainer's at the start of
# the batch: its $\rho$ holds mismatch *and* staleness.) Many dashboards show only the product.
# To tell the two apart the trainer must score with the rollout's weights.

# %% tags=["anchor:apart"]
print(f"{'':32}mismatch  staleness      both")
for name, engine, weights in (
        ("INT4, no update", INT4, policy),
        ("no fault, 12 updates", Stack(), newer),
        ("INT4, 12 updates", INT4, newer),
        ("temperature 0.8, 12 updates", sampler(temperature=0.8), newer)):
    asked = task.prompts(512, noise(500))
    x = generate(policy, task, asked, engine, noise(501))
    old, new = (score(w, x.prompt, x.response, Stack()).logp.detach()
                for w in (policy, weights))
    three = apart(x.logp_rollout, old, new, x.mask)
    for number in ("k1", "k3", "clip_fraction"):
        print(f"{name if number == 'k1' else '':28}{number[:4]:4}",
              *(f"{x[number]:9.4f}" for x in three))
*parts, both = (x["k3"] for x in three)
reveal("10.cancel", sums[2 if both < 0.8 * max(parts) else
                         0 if both > 1.2 * max(parts) else 1])

# %% [markdown] tags=["anchor:clip"]
# K1 adds up, nothing else does. In the last case two faults hide each other: the updates
# walk towards what the sampler did, and the product looks *better* than the mismatch alone.
#
# **The clip fraction jumps: what may it mean?** Before the first update of a batch old and
# new are one policy, so nothing can be clipped, unless "old" came from the rollout: a jump
# *there* is mismatch, of format, sampler or columns. A jump that grows over minibatches or
# with the age of rollouts is staleness, or a learning rate too large. And it can be silent:
# under top-p every ratio is off and none leaves 0.8 to 1.2 (`clip_fraction` in the matrix
# above). Mismatch and staleness are this table's first two columns.
#
# ## What a wrong ratio does to an update
#
# One batch, groups of eight. The gradient of GRPO's loss with the rollout's logprobs as
# old, against the one with the trainer's own, as far as they point the same way. Only groups
# whose answers earned different rewards push. At T = 1.5 these are few, and the cosine differs
# from batch to batch.

# %% tags=["anchor:advantage"]
asked = task.prompts(256, noise(600))
for name, engine, n in (("BF16", BF16, 32), ("INT4 weights", INT4, 32),
                        ("temperature 1.5", sampler(temperature=1.5), 256)):
    b = answered(policy, task, asked[:n], engine, noise(601))
    useful, update = (b.A != 0).sum() // GROUP, first_update(O.grpo, b)
    print(f"{name:16}{useful:3} of {n} groups; cosine {update.cosine:+.2f}; no "
          f"gradient: {update.stopped_good:.0%} of tokens with A > 0, "
          f"{update.stopped_bad:.0%} with A < 0")

# %% [markdown]
# As in lesson 08, which trains with it: under INT4 the clip stops few tokens, but they are the
# mistakes, and the gradient turns. At temperature 1.5 most tokens of *good* answers start
# beyond 1.2 and get nothing, those of bad answers are pushed down: the advantage meets the
# wrong update.
#
# ## Alarms while it trains
#
# `alarms.py` holds thresholds that others have published, each with its source.
# Four runs of thirty steps start alike, on the healthy BF16 pair. At step 11 something
# happens in three of them: new **weights no longer arrive** at the engine; the engine is
# switched to **INT4**; somebody sets **top-p 0.9**, and the engine reports raw logprobs.

# %%
int4 = replace(ENGINE, numerics=replace(ENGINE.numerics, weights="int4"))
arms = {"nothing": "none", "weights stop": "weights stop", "INT4": int4,
        "top-p, raw": replace(ENGINE, sampler=raw.sampler)}
question = "After which of these will no alarm ring?"
predict("10.silent", question, list(arms)[1:])

# %%
LAST, AT = 30, 10
runs = live(policy, task, ENGINE, BF16, noise(700), steps=LAST, after=AT,
            faults=arms, recipe=QUICK.recipe)

# %% tags=["anchor:alarms"]
fig, axes = plt.subplots(1, 4, sharey=True, figsize=(style.WIDTH, 4.2))
draw_rings(axes, runs, AT)
plt.show()
own = {}
for name, run in runs.items():
    own[name] = serve(run.trainer.model, task, ENGINE, noise(800))
    print(f"{name}: logged reward {sum(run.rewards[-10:]) / 10:.2f}; pass rate "
          f"of the trainer's weights {own[name].right:.2f};", told(run, AT))
reveal("10.silent", min(list(arms)[1:], key=lambda x: rung(runs[x])))
claim("alarms that ring after top-p with raw logprobs (control: weights stop)",
      rung(runs["top-p, raw"]), equal=0, control=rung(runs["weights stop"]))

# %% [markdown]
# A square is an alarm that rings at a step. Four findings.
#
# - **Loud is not harmful.** Under INT4 many alarms ring from the first step on, and the
#   trainer's own pass rate ends near the clean run's, as far as one run can say. The bounds
#   were set for other models: rounding of this size is rare in theirs.
# - **Harm is not loud where you look.** Weights that stop arriving ring the tight bounds of K3
#   within a few steps, verl's wide ones late or not at all. The logged reward cannot show the
#   harm: it is that of an engine that stands still. The trainer's own pass rate does, and
#   stays far below the clean run's. A *trend* is the better alarm: ten times what the run
#   itself began with rings at once, and goes on ringing. (It rings for INT4 as well: a trend
#   says that something changed, not that it does harm. And a single ring may be chance: a
#   clean run can have one.)
# - **A format alone builds nothing up.** INT4's K3 is there at once and does not grow (last
#   printed number of each run). Large models are reported whose K3 climbs before a collapse
#   (reading list). Here only stale weights do that, and no setting was tuned until a format
#   did.
# - **Silence is no proof.** Top-p with raw logprobs rings nothing, and its reward is the best
#   of all. No false alarm in the clean run tells you just as little about the bounds being
#   right: the lowest of K3 lies above this run's largest by the factor that is printed.
#
# So watch **token and sequence delta over steps**, mean and tail, against the run's own
# beginning; let an alarm need several steps in a row, let it go off below a second, lower
# bound, and let NaN ring (trl#6266; lab 10 has you write it).
#
# ## Clean curves, and served
#
# Now take the two runs without an alarm, and serve their policies. Format is right where
# the answer has thirteen tokens and ends.

# %% tags=["anchor:served"]
served = {}
print(f"{'trained with':12} {'served on':22} pass  length  format")
for name in ("nothing", "top-p, raw"):
    run, log = runs[name], sum(runs[name].rewards[-5:]) / 5
    print(f"{name:12} {'log, last five steps':22}{log:5.2f}")
    of = {"that engine, no cut": own[name]}
    for x, stack in (("its rollouts' engine", run.trainer.rollout_stack),
                     ("INT4", int4), ("<bos> twice", ENGINE)):
        of[x] = serve(run.trainer.model, task, stack, noise(800),
                      bos_twice=x == "<bos> twice")
    for where, given in of.items():
        print("{:12} {:22}{:5.2f}{:8.2f}{:8.2f}".format("", where, *given))
    served[name] = log - own[name].right
claim("reward in the log, less pass rate served without top-p (control: clean)",
      served["top-p, raw"], at_least=0.15, control=served["nothing"])

# %% [markdown] tags=["anchor:symptom"]
# This is **the usual symptom**: the training curves are clean, and quality, length, format
# or success differ where the model serves. Nothing in training was untrue. The log says
# what *its sampler* earns: with the cut, nearly everything. Without, the policy's own
# tail, never sampled and so never punished, takes a good part of it back. Another format
# (INT4) takes another part, from either policy.

# %% [markdown] tags=["anchor:hint"]
# A gap like this is far outside chance: the standard error of a pass rate over 512 is about
# 0.02. It is a **hint that something was left unaligned** between what trained and what
# serves. *What* it was these columns do not tell: the format can fall under INT4, which touches
# no template, and hold under a second `<bos>`.

# %% [markdown] tags=["anchor:real-stack"]
# So **evaluate through the real stack**: the engine, its format, its sampler, its template;
# the weights as served; fixed prompts, an interval, every so many steps. Not through the
# training stack, not greedily, not at the rollouts' top-p. Three measurements separate
# causes: the checkpoint on the rollouts' stack; the same prompts on the serving stack; the
# served ids scored by the trainer. What each outcome means is lab 10's open question.
#
# ## One name, two numbers

# %% tags=["anchor:names"]
for ours in ("k1", "k3", "ratio_mean", "ess", "chi2_seq", "chi2_geometric"):
    print(ours)
    for who, n in ((w, n) for w, f in FRAMEWORKS.items() for n in f.names):
        if n.ours == ours:
            print(f"   {who:9} {n.theirs:40} {n.of}")
            if n.note:
                text = f"{'note' if n.same else 'NOT OURS'}: {n.note}"
                print(textwrap.indent(textwrap.fill(text, 88), " " * 13))
for framework in ("verl", "ms-swift"):
    m = translate(framework, {n: x[0].estimate
                              for n, x in found["INT4 weights"].items()})
    (name,) = (n for n in m if n.endswith("chi2_seq"))
    print(f"INT4, one batch: {framework}'s {name} {m[name]:.4f}")
print("\n".join(textwrap.fill(f"{word}: {says}", 88, subsequent_indent="   ")
                for word, says in TWO_MEANINGS.items()))

# %% [markdown]
# Sources were read in August 2026. Before two dashboards are compared, three questions: of
# which ratio (old / rollout, new / old, or both); before or after the correction; over tokens
# or over responses.
#
# ## The panel
#
# Two arms, trained here on two seeds: a healthy one, and one whose rollouts come from
# weights of eight steps ago. Look at **reward while training** beside **pass rate
# at the end**: the log of the stale arm shows what an *older* policy earned.

# %% tags=["anchor:panel"]
two = {name: replace(QUICK, steps=32, prompts=128, staleness=stale)
       for name, stale in (("healthy", 0), ("8 steps stale", 8))}
compared = experiment(policy, task, two, [seed(0), seed(1)])
for arm, run in ((arm, run) for arm in compared for run in compared[arm]):
    k3, R = (run.series(name).view(-1, 8).mean(1)
             for name in ("mismatch.k3", "reward"))
    print(f"{arm:13}, means of 8 steps: K3", *(f"{x:.3f}" for x in k3),
          "  reward", *(f"{x:.2f}" for x in R))
RunsPanel(policy, task, runs=compared, base=two["healthy"], seeds=2)

# %% [markdown] tags=["anchor:unstable"]
# The stale arm's first mean does not count: its buffer fills with older weights. From step 9
# on K3 climbs, mostly several times over, and the reward stays behind that of the healthy arm;
# in some runs it turns and falls. Instability has a history, and the number that shows it is
# mismatch *over steps*. Add arms: top-p 0.9 (its two pass rates lie apart, its K3 is small and
# steady), INT4 (the other way round: alarming K3, little harm), a correction for the stale one
# (lesson 09).
#
# ## For your own stack
#
# - Log old / rollout and new / old apart, before any correction: quantiles, share outside the
#   clip by side, ESS. Write to each metric which ratio it is of.
# - Beside them, of tokens and of sequences: mean, 99th percentile and largest |delta|, and K3
#   in float64. Intervals resample responses.
# - No alarm is no proof: every so many steps, evaluate on the stack that serves.
#
# ## Check yourself
#
# Answer aloud, then open.
#
# <details><summary>Measure the mismatch of tokens, and of sequences. Which numbers, and why
# more than one of each?</summary>
#
# Tokens: mean, 99th percentile and largest |delta|, K3 in float64. Sequences: summed delta,
# its size over the root of the length, the largest. The mean drowns rare faults, the tail
# misses what is rarer, K1 and sums miss errors that cancel.
# </details>
#
# <details><summary>Which ratio numbers belong on a dashboard?</summary>
#
# Of old / rollout and of new / old, apart: mean and quantiles of the ratio, share outside
# the clip by side, ESS, share dropped by token and by response; correlation with reward.
# </details>
#
# <details><summary>The clip fraction jumps. What may it mean?</summary>
#
# At the first minibatch: "old" is not the trainer's (mismatch, wrong columns, temperature).
# Growing over minibatches: step size. Growing with the age of rollouts: staleness.
# </details>
#
# <details><summary>The approximate KL is negative, or large at step 0. What has that to do
# with mismatch?</summary>
#
# K1 may be negative by chance or because tokens are not from the policy assumed. At step 0
# nothing was updated: whatever is not 0 is a difference of engines, semantics or columns.
# </details>
#
# <details><summary>ESS of sequences is 0.99. Good news?</summary>
#
# Only if |Delta| is small. With a sharper sampler the responses that would decide are
# missing, and those that are there look alike.
# </details>
#
# **Now write it yourself**: [lab 10](../labs/lab10_monitoring/lab10_monitoring.ipynb), eight
# functions, each checked at once.
#
# ## Where to read on
#
# - Alarming numbers in real runs: verl#3597; old and new differ at step 0: RLinf#1534
# - A sequence ratio that masks everything: trl#4772; a ratio centred below 1: trl#6789
# - Mismatch over training, FP16 against BF16: arXiv 2510.26788; with R3: arXiv 2510.11370
# - K1, K2, K3: J. Schulman, "Approximating KL divergence", 2020; the bootstrap: Efron, 1979
# - `src/tinyrl/alarms.py` and `framework_names.py`: every bound and name, with its source
#
# ## 中文小结
#
# 1. 每个指标都只看得见一部分故障；先问它看不到什么，再看它的数值。
# 2. 整体错开一列时误差最大，K1、困惑度差和序列级的和却接近 0：正负相互抵消。
# 3. 均值是大小乘以频率，稀少的大故障要看最大值；99 分位看不见比百分之一更稀少的事。
# 4. 首选 token 的一致率几乎什么都看不见；top-k 集合的变化才看得见被截断的采样。
# 5. 区间要按回答重抽，不按 token；K3 要用 float64 和 expm1，这样 1e-9 也是真实的数。
# 6. 整条回答的 ESS 和 chi2：坏的时候是证据，好的时候什么也不证明，稀少的回答根本没被采到。
# 7. 日志里的奖励属于采样的策略；奖励与比值相关时，训练策略自己的奖励是另一个数。
# 8. 不一致（old/rollout）与滞后（new/old）要分开记录：两者合在一起可能互相掩盖。
# 9. 警报响不等于有害，不响也不等于健康：top-p 加原始 logprob 时一声不响，奖励还最高。
# 10. 训练曲线正常而部署变差，说明有东西没有对齐；应当用真正部署的整套系统来评测。
