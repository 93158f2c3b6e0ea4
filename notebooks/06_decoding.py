# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Decoding
#
# > **The engine samples with top-p 0.95, the trainer takes a softmax over everything. Both
# > say "the logprob of this token". Of which distribution?**
#
# You will see what each sampling parameter does to a distribution, find the exact constant
# that a cut leaves in every ratio, work out by enumeration which old logprob makes a ratio
# right, repair a cut by replaying it, and learn what no weight can repair. Then: bugs in
# code that many have learned from, a training curve that lies, and why only the stack that
# serves can tell how good a policy is. 40 minutes to read, under a minute to compute.

# %%
from copy import deepcopy

import matplotlib.pyplot as plt
import torch
from tqdm.auto import tqdm

from tinyrl.checkpoints import load
from tinyrl.course import panel, style
from tinyrl.course.claims import claim, seed
from tinyrl.course.predictions import predict, reveal
from tinyrl.metrics import compare
from tinyrl.rollout import rollout
from tinyrl.sampling import Sampler
from tinyrl.scoring import response_logits, score
from tinyrl.stack import PRESETS, Stack, replace_at
from tinyrl.tasks import CumSum
from tinyrl.trainer import generate, rl

torch.set_num_threads(1)  # the fast setting for a model this small
style.use()
model, task = load("sft"), CumSum()
tok = task.tokenizer


def noise(offset):
    return torch.Generator().manual_seed(seed(offset))


def decoding(numerics=Stack(), **how):
    # A stack that decodes like this; scored like this, if it is a trainer.
    for name, value in how.items():
        numerics = replace_at(numerics, f"sampler.{name}", value)
    return numerics


prompts = task.prompts(256, noise(0))


def sides(engine, trainer=Stack(), policy=model):
    # A batch that the engine sampled, and what a trainer makes of it.
    x = generate(policy, task, prompts, engine, noise(1))
    with torch.no_grad():
        return x, score(policy, x.prompt, x.response, trainer, kept=x.kept)


# %% [markdown] tags=["anchor:parameters"]
# ## What the parameters do
#
# Logits $z$ become a distribution in steps, here in the order of `transformers`:
#
# | | keeps | what is kept becomes |
# |---|---|---|
# | **repetition penalty** r | all | logits of tokens seen before: divided by r, or times r if negative |
# | **temperature** T | all | $z / T$ |
# | **top-k** | the k likeliest | renormalised |
# | **top-p** | the likeliest until their sum reaches p, the one that crosses included | renormalised |
# | **min-p** | those at least min-p times as likely as the likeliest | renormalised |
#
# The first two move probability. The last three **cut**: a token outside has probability
# exactly 0. (vLLM applies min-p before top-k and top-p, see `vllm/v1/sample/sampler.py` at
# 3e34265; with both, sets can differ.) Here is one real place of the checkpoint, the third
# token of an answer.

# %%
free, _ = sides(Stack())
z = response_logits(model, free.prompt, free.response, Stack()).detach()
seen = Sampler(repetition_penalty=2.0).before(free.prompt, free.response, 16)
ways = {
    "T = 1": {}, "T = 1.5": {"temperature": 1.5}, "top-k 4": {"top_k": 4},
    "top-p 0.95": {"top_p": 0.95}, "min-p 0.01": {"min_p": 0.01},
    "penalty 1.5": {"repetition_penalty": 1.5},
}
fig, axes = plt.subplots(2, 3, figsize=(8.4, 4), sharex=True, sharey=True)
order = z[0, 2].argsort(descending=True)
for ax, (name, how) in zip(axes.flat, ways.items()):
    p = Sampler(**how).process(z[0, 2], seen[0, 2]).softmax(-1)[order]
    ax.bar(range(16), z[0, 2].softmax(-1)[order], color="#E4E6EA")
    ax.bar(range(16), p, 0.5, color=style.ROLLOUT)
    ax.set(yscale="log", ylim=(1e-5, 1.5))
    style.label(ax, f"{name}: keeps {(p > 0).sum()} of 16")
fig.supxlabel("tokens by rank", fontsize="medium")
fig.supylabel("probability", fontsize="medium")
plt.show()

# %% [markdown]
# Grey is the model. The right digit has about nine tenths; most others have about a
# hundredth each (the demonstrations were sloppy on purpose), and the rest, special tokens
# above all, next to nothing. Every
# parameter is a *definition of the policy*: it says which distribution acts. If a trainer
# computes another one, nobody has made a rounding error, and no precision will help.

# %% [markdown]
# ## The constant log S
#
# An engine cuts, its trainer does not, and both are exact otherwise.

# %%
shapes = ["both signs, 0 on average", "log 0.95 everywhere",
          "never above 0, its own value at each place"]
question = "Top-p 0.95 in the engine, nothing in the trainer. Delta is ..."
predict("06.constant", question, shapes)

# %% [markdown]
# Let $p$ be the model's distribution, $K_t$ the set that was kept at step t and
# $S_t = \sum_{a \in K_t} p(a)$ its mass. The engine samples from, and reports,
# $\mu(a) = p(a) / S_t$. A trainer that knows nothing of the cut computes $p(a)$. So
#
# $$\delta_t = \log p(a_t) - \log \frac{p(a_t)}{S_t} = \log S_t,
# \qquad e^{\delta_t} = S_t$$
#
# whichever token was sampled.

# %% tags=["anchor:log-s"]
cut, full = sides(decoding(top_p=0.95))
double = deepcopy(model).double()
p = response_logits(double, cut.prompt, cut.response, Stack()).softmax(-1)
S = (p * cut.kept).sum(-1).detach()[cut.mask]  # float64, by enumeration
d = (full.logp - cut.logp_rollout).double()[cut.mask]
fig, (left, right) = plt.subplots(1, 2)
left.plot(S.log(), d, ".", ms=2, color=style.DELTA)
left.plot([-0.055, 0], [-0.055, 0], color=style.QUIET, lw=0.8)
style.label(left, "Delta is log S", "log S, enumerated", "delta, nats")
right.hist(d.exp(), bins=60, color=style.DELTA)
right.axvline(0.95, color=style.BAD, lw=1)
style.label(right, "Ratio p / mu: never below 0.95", "ratio", "tokens")
plt.show()
off = (d - S.log()).abs().max().item()
simple = (d - torch.tensor(0.95).log()).abs().max().item()
print(f"mean ratio {d.exp().mean():.4f}, mean S {S.mean():.4f}; largest "
      f"|delta - log S| {off:.1e}, |delta - log 0.95| {simple:.1e}")
reveal("06.constant", shapes[0 if d.max() > 1e-4 else 1 if simple < off else 2])

# %% [markdown]
# S is at least 0.95, since the token that crosses is kept, and much more where that token
# is large. trl#7269 measured the same with a real engine (top-p 0.8 with top-k 1024: kept
# mass 0.895, mean ratio 0.896; top-k 20: both 0.965), and trl#6789 simulates a distribution
# over 32,000 words, of which top-k 20 leaves a mass of 0.11. All tokens are off **to one
# side**, so nothing averages out: a sequence's ratio is the product, here of thirteen numbers
# below 1. (A temperature moves probability between tokens: its delta has both signs.)
#
# ## Raw or processed
#
# Engines can report a logprob from before all this (**raw**, vLLM's default) or from
# after it (**processed**); lesson 01 estimated a pass rate with either. Below,
# temperature 0.9 and top-p 0.98 in the engine; both reports; and three trainers: one that
# knows nothing, one that divides by 0.9, and one that also takes its softmax over the
# kept set.

# %% tags=["anchor:raw"]
hot = dict(temperature=0.9, top_p=0.98)
trainers = {
    "softmax": Stack(),
    "divided by 0.9": decoding(temperature=0.9),
    "and over the kept": decoding(temperature=0.9, replay="rollout"),
}
silent = {}
print(f"{'engine reports':16}{'trainer':20}{'mean |delta|':>12}{'K3':>10}")
for kind in ("raw", "processed"):
    for name, trainer in trainers.items():
        x, s = sides(decoding(**hot, logprobs=kind), trainer)
        c = compare(x.logp_rollout, s.logp, x.mask)
        silent[kind, name] = c.k3
        print(f"{kind:16}{name:20}{c.mean_abs:12.4f}{c.k3:10.1e}")

# %% [markdown]
# Two rows have a delta of nearly nothing, and they mean opposite things. *Processed*
# against the full imitation is right. *Raw* against a plain softmax compares two
# numbers that are **both not** the probability with which the token was drawn: the alarm
# is silent, the data come from another policy. A K3 near zero says that two columns agree.
# It does not say that either is the sampler.
#
# ## Which old logprob makes the ratio right?
#
# Importance sampling promises, for every function $f$,
#
# $$\mathbb{E}_{a \sim \mu}\Big[\frac{\pi_\text{new}(a)}{\text{old}(a)} f(a)\Big] =
# \mathbb{E}_{a \sim \pi_\text{new}}[f(a)].$$
#
# With 16 tokens the left side can be written down: it weighs token $a$ with
# $\mu(a)\,\pi_\text{new}(a)/\text{old}(a)$. The sum of its distances to
# $\pi_\text{new}(a)$ is the **error**: the most by which any $f$ between -1 and 1 is
# estimated wrongly. New logits are those of above plus a small random update.

# %%
cures = ["yes, both", "temperature yes, top-p no", "neither"]
predict("06.weight", "The ratio p_new / mu, exact: does it "
        "repair a temperature, and a top-p, in the engine?", cures)

# %% tags=["anchor:which-old"]
z0 = z[free.mask].double()  # [N, 16]
z1 = z0 + 0.1 * torch.randn(z0.shape, generator=noise(2))
K = Sampler(top_p=0.95).process(z0).isfinite()


def over(z, kept=torch.tensor(True)):
    return z.masked_fill(~kept, -torch.inf).softmax(-1)


def misplaced(mu, new, old):
    seen = torch.where(mu > 0, mu * new / old, 0.0)
    return (seen - new).abs().sum(-1).mean().item()


p0, p1, m, k = over(z0), over(z1), over(z0 / 0.7), over(z0, K)
rows = {
    ("T = 0.7", "old raw or recomputed, new plain"): (m, p1, p0),
    ("T = 0.7", "old processed, new plain"): (m, p1, m),
    ("T = 0.7", "old processed, new at T = 0.7"): (m, over(z1 / 0.7), m),
    ("top-p 0.95", "old raw or recomputed, new plain"): (k, p1, p0),
    ("top-p 0.95", "old processed, new plain"): (k, p1, k),
    ("top-p 0.95", "old processed, new over the kept"): (k, over(z1, K), k),
}
wrong = {}
for (engine, name), (mu, new, old) in rows.items():
    wrong[engine, name] = misplaced(mu, new, old)
    step0 = torch.where(mu > 0, mu * (new / old).log(), 0.0).sum(-1).mean()
    print(f"{engine:11} {name:34} error {wrong[engine, name]:8.1e}, "
          f"mean log ratio {step0:+.3f}")
tail = (p1 * ~K).sum(-1).mean().item()
print(f"mass of the new policy outside the kept sets: {tail:.4f}")

# %% [markdown]
# Read it slowly, it is the heart of the lesson.
#
# - **Temperature.** The engine gives every token a chance, so the exact ratio repairs it:
#   error 0. What is needed is the logprob of what was *sampled from*: processed. With raw
#   or recomputed logprobs the ratio begins at 1, looks healthy, and is wrong.
# - **A cut.** Same rule for the old logprob. But then the error is exactly the mass of the
#   new policy outside the kept sets, the last line: tokens that were never drawn, so no
#   weight is ever applied to them. **A cut tail cannot be repaired by a weight.**
# - **Last rows.** Give the new policy the same processor as the engine, and the ratio is
#   right again, for *that* policy. One has to say which policy one trains.
#
# If nobody says which logprob "old" is, the ratio means nothing in particular: the rows
# with an error are all "new over old", too.

# %% tags=["anchor:unreachable"]
exact = [wrong[engine, "old processed, new plain"]
         for engine in ("T = 0.7", "top-p 0.95")]
gaps = [abs(error / tail - 1) for error in exact]
claim("delta off log S; ratio's error off cut mass (control: log 0.95; T)",
      max(off, gaps[1]), at_most=1e-4, control=min(simple, gaps[0]))
reveal("06.weight", cures[sum(error > 1e-9 for error in exact)])

# %% [markdown]
# ## Replay the mask
#
# So the trainer should use the engine's cut. Could it not compute top-p itself? Its logits
# differ by rounding, and where the border is near, so does its set.

# %% tags=["anchor:replay"]
engine = decoding(PRESETS["bf16"], top_p=0.95)
replay = decoding(replay="rollout")
x, own = sides(engine, decoding(top_p=0.95))
gone = (own.logp == -torch.inf) & x.mask
print(f"the trainer's own top-p gives probability 0 to {gone.sum()} of "
      f"{x.mask.sum()} tokens that were sampled")
try:
    compare(x.logp_rollout, own.logp, x.mask)
except ValueError as refused:
    print("compare:", refused)


def k3(engine, trainer):
    x, s = sides(engine, trainer)
    return compare(x.logp_rollout, s.logp, x.mask).k3


print(f"{'engine':24}{'K3, no cut':>12}{'K3, replayed':>14}")
for name, e in (("FP32, top-p 0.95", decoding(top_p=0.95)),
                ("BF16, top-p 0.95", engine),
                ("BF16, no cut", PRESETS["bf16"])):
    print(f"{name:24}{k3(e, Stack()):12.1e}{k3(e, replay):14.1e}")
warm = decoding(top_p=0.95, temperature=1.2)
claim("K3 without over with replay, FP32 (control: a forgotten T = 1.2)",
      k3(decoding(top_p=0.95), Stack()) / k3(decoding(top_p=0.95), replay),
      at_least=1e3, control=k3(warm, Stack()) / k3(warm, replay))

# %% [markdown]
# Probability 0 for a sampled token is a logprob of minus infinity, and every check here
# refuses it by row and column. **Sampling-mask replay** avoids it: the engine records the
# kept set of each token (`Batch.kept`), the trainer sets all other logits to minus infinity
# and takes its own softmax over that set. It is the "keep sampling mask" of DeepSeek-V3.2
# (arXiv 2512.02556), in vLLM since vllm#49577 and in prime-rl#3431, and a twin of R3
# (lesson 07): the set is replayed, the numbers are recomputed, so they carry a gradient.
# What remains is the rounding of BF16. It repairs cuts alone, no temperature.
#
# ## Max tokens
#
# Before the last processor, a parameter that touches no logprob. A right answer has 13
# tokens, end token included.

# %% tags=["anchor:max-tokens"]
def told(policy, stack, max_new=task.max_new, n=512):
    # Length, share that never ended, share in the right format, share solved.
    how = dict(max_new=max_new, eos_id=tok.eos_id, pad_id=tok.pad_id)
    x = rollout(policy, task.prompts(n, noise(3)), stack, noise(4), **how)
    lengths = x.mask.sum(1)
    ends = x.response.gather(1, lengths[:, None] - 1)[:, 0] == tok.eos_id
    reward = task.reward(x.prompt, x.response, x.mask)
    four = lengths, ~ends, ends & (lengths == task.max_new), reward
    return [x.double().mean().item() for x in four]


def table(head, rows):
    print(f"{head:28}{'length':>8}{'cut off':>9}{'format':>8}{'solved':>8}")
    for name, (policy, stack, n) in rows.items():
        length, off, form, solved = told(policy, stack, n)
        print(f"{name:28}{length:8.2f}{off:9.1%}{form:8.1%}{solved:8.1%}")


table("max tokens", {str(n): (model, Stack(), n) for n in (6, 12, 13, 17)})

# %% [markdown]
# One token too few and every reward is 0, for reasons that have nothing to do with the
# policy. With GRPO nothing at all is learned then: the answers of a group are alike, and
# every advantage is 0. Where only some of a group are cut, these get a gradient against
# being long, right or wrong. (What reward and mask must do with a cut response is
# lesson 05.) *Format* here: it ends, and has the right number of tokens.
#
# ## A repetition penalty on one side
#
# Some checkpoints bring one along: their `generation_config.json` sets 1.05 or more, and an
# engine may take it as its default (verl#7270, prime-rl#886). Few trainers apply it, too:
# NeMo-RL#3497 measured a model whose file sets 1.1, and found a geometric mean of the ratio
# of 0.895 (the arithmetic one, 1.0003, hides it).

# %% tags=["anchor:repetition"]
penalised = decoding(repetition_penalty=1.1)
x, s = sides(penalised)
before = penalised.sampler.before(x.prompt, x.response, 16)
again = before.gather(-1, x.response[..., None])[..., 0]
d, p = s.logp - x.logp_rollout, s.logp.exp()
fig, (left, right) = plt.subplots(1, 2)
likely = before.gather(-1, s.top1[..., None])[..., 0]  # of the trainer
for one, colour in ((True, style.ROLLOUT), (False, style.TRAIN)):
    for other, form in ((True, "."), (False, "x")):
        at = (likely == one) & (again == other) & x.mask
        name = ", ".join("seen" if seen else "new" for seen in (one, other))
        left.plot(p[at], d[at], form, ms=4, color=colour, label=name)
left.legend(title="likely token, sampled token", loc="lower right", ncols=2)
left.axhline(0, color=style.QUIET, lw=0.8)
style.label(left, "Penalty 1.1 in the engine", "p of trainer", "delta, nats")
solved = {r: told(model, decoding(repetition_penalty=r))[-1]
          for r in (1.0, 1.05, 1.1, 1.2, 1.5)}
right.plot(solved.keys(), solved.values(), "o-", color=style.ROLLOUT)
style.label(right, "Answers suffer from it", "penalty", "share solved")
plt.show()

# %% [markdown]
# Left: dividing takes most from the largest logit. Where the *likely token was seen before*
# (orange), the engine rates it lower than the trainer does (right half, delta above 0) and the
# unlikely ones higher (left half, far below 0; the new ones, crosses, most). Where it is new
# (blue), it hardly moves, and unlikely tokens seen before fall (dots above 0). Which case a
# place falls into depends on the history: this is the one processor with a memory, and that is
# its fingerprint (vllm#9453). It does harm where repeating is right: an answer is made of the
# same ten digits as its question. Nothing is cut, so the exact ratio would repair it; in
# practice one sets it to 1.
#
# ## The bug museum
#
# Five pieces of code from which many have learned GRPO, and rightly so. Each was read at
# the commit given; each samples from one distribution and scores another. We rebuild the
# setting, not the code, and measure it on our model (numbers of a large vocabulary
# differ). *They see* is the mean |log ratio| of the ratio that their loss computes before
# any update; *truth* that of the model's logprob against what was sampled from, and K3 goes
# with it; *x BF16* is that K3 over the one that a BF16 engine shows without a cut, at T = 1;
# *cut mass* is the model's mass on tokens that are never drawn.
#
# | | file, commit | samples with | scores with |
# |---|---|---|---|
# | nanochat | karpathy/nanochat `scripts/chat_rl.py` 92d63d4 | top-k 50 | softmax over all, no ratio: "on policy" |
# | reasoning | rasbt/reasoning-from-scratch `reasoning_from_scratch/ch06.py` f79c9cd | T 0.8, top-p 0.9 | softmax over all at T 1, no ratio |
# | rlhf-book | natolambert/rlhf-book `code/policy_gradients/rollout.py`, `utils.py` a66b0bf | T 0.6, top-p 0.95, top-k 20 | softmax at T 1, as old and as new |
# | simple_GRPO | lsdefine/simple_GRPO `grpo_vllm_one.py` 4ab94c6 | T 0.9 | old: the engine's prompt logprobs, without T; new: softmax at T 1 |
# | nano-aha | McGill-NLP/nano-aha-moment `nano_r1_script.py`, `utils.py` 6cd0306 | T 1, top-p 0.999 | softmax over all at the same T, no ratio |

# %% tags=["anchor:museum"]
museum = {  # of our 16 tokens, top-k 20 cuts none
    "nanochat": (dict(top_k=4), None),
    "reasoning": (dict(temperature=0.8, top_p=0.9), None),
    "rlhf-book": (dict(temperature=0.6, top_p=0.95, top_k=20), "recompute"),
    "simple_GRPO": (dict(temperature=0.9), "raw"),
    "nano-aha": (dict(top_p=0.999), None),
}
bf16 = k3(PRESETS["bf16"], Stack())
hidden = [silent["processed", "softmax"] / max(bf16, silent["raw", "softmax"])]
print("              they see   truth       K3   x BF16  cut mass")
for name, (how, anchor) in museum.items():
    x, s = sides(decoding(**how))
    raw, _ = sides(decoding(**how, logprobs="raw"))
    old = {"raw": raw.logp_rollout, "recompute": s.logp}.get(anchor)
    seen = old is not None and compare(old, s.logp, x.mask)
    sees = f"{seen.mean_abs:.4f}" if seen else "no ratio"
    p = response_logits(model, x.prompt, x.response, Stack()).softmax(-1)
    lost = 0.0 if x.kept is None else (p * ~x.kept).sum(-1)[x.mask].mean()
    true = compare(x.logp_rollout, s.logp, x.mask)
    hidden.append(true.k3 / max(bf16, seen.k3 if seen else 0.0))
    print(f"{name:12}{sees:>10}{true.mean_abs:8.4f}{true.k3:9.1e}"
          f"{true.k3 / bf16:9.3g}{lost:10.2%}")
claim("true K3 over what shows, or over BF16's (control: nano-aha)",
      min(hidden[:-1]), at_least=5, control=hidden[-1])

# %% [markdown]
# None of them *sees* it, for three reasons. Three have no ratio. In rlhf-book the old
# logprobs are recomputed by the weights that are trained: before an update the ratio is one
# array minus itself, 0 whatever was sampled. simple_GRPO does compare two engines: the
# trainer, and a vLLM that gets new weights every 16 steps. It would see rounding and staleness,
# of which ours has neither. But both columns leave out T, and so does their difference.
# As in the row *raw, softmax* above, the claim asks how much larger the true K3 is than
# what shows, or than the rounding that any alarm must allow for. In each but the last it is
# large; there "nearly no cut", to exclude ids that the tokenizer lacks, is nearly right.
#
# Why top-k 4 for nanochat? 50 of tens of thousands of tokens are a share of a thousandth or
# so of the vocabulary: of our 16, not even one token. So no k has the same share, and we
# kept about the same *mass* as trl#7269 measured for top-k 20 (0.965; see *cut mass*). A
# top-k 50 cuts less, so this row is an upper end. And that both rows with a low temperature
# and a top-p (0.9, 0.95) leave a *single* token nearly everywhere, so that the two are greedy
# and equal, is the doing of our checkpoint, not theirs.
#
# ## A curve that lies
#
# Does it matter for training? Four runs of GRPO from one start, old logprobs recomputed. The
# reward that a run logs is that of its **sampler**. Beside it, the start and the four policies
# are evaluated by four decoders.

# %%
shares = ["a third, too", "about two thirds", "nearly everything"]
predict("06.curve", "The start solves a third of prompts at T = 1. Decoded "
        "greedily, it solves ...", shares)

# %% tags=["anchor:training"]
runs = {
    "no cut": (Stack(), Stack()),
    "top-p": (decoding(top_p=0.95), Stack()),
    "top-p, replayed": (decoding(top_p=0.95), replay),
    "penalty 1.1": (penalised, Stack()),
}
colours = (style.TRAIN, style.ROLLOUT, style.GOOD, style.QUIET)
fig, (left, right) = plt.subplots(1, 2)
policies, logged, gap = {"start": model}, {}, {}
for (name, (engine, trainer)), colour in zip(runs.items(), colours):
    form = (0, (3, 3)) if trainer == replay else "-"
    policy = policies[name] = deepcopy(model)
    how = dict(rollout_stack=engine, train_stack=trainer, steps=40)
    run = rl(policy, task, generator=noise(5), **how)
    steps = list(tqdm(run, total=40, leave=False))
    logged[name] = sum(s.reward for s in steps[-5:]) / 5
    left.plot([s.reward for s in steps], ls=form, color=colour, label=name)
    size = [max(s.mismatch.k3, 1e-13) for s in steps]
    wide = 5 if engine == trainer else 1.8  # what lies on it shows
    right.semilogy(size, ls=form, color=colour, lw=wide)
style.label(left, "Logged reward: the sampler's", "step", "share solved")
style.label(right, "Trainer to engine (0 at 1e-13)", "step", "K3, nats")
fig.legend(loc="outside lower center", ncols=4)
plt.show()

# %% tags=["anchor:greedy"]
decoders = {"greedy": decoding(top_k=1), "top-p 0.95": decoding(top_p=0.95),
            "T = 1": Stack(), "T = 1.2": decoding(temperature=1.2)}
print(f"{'solved by':16}" + "".join(f"{x:>12}" for x in [*decoders, "logged"]))
for name, policy in policies.items():
    each = [told(policy, d)[-1] for d in decoders.values()]
    each += [logged[name]] if name in logged else []
    print(f"{name:16}" + "".join(f"{x:12.1%}" for x in each))
    gap[name] = each[-1] - each[2]
claim("logged reward minus solved at T = 1, top-p run (control: no cut)",
      gap["top-p"], at_least=0.15, control=gap["no cut"])
greedy = told(model, decoders["greedy"])[-1]
reveal("06.curve", shares[(greedy > 0.5) + (greedy > 0.85)])

# %% [markdown]
# Three findings, and one disappointment.
#
# - **The log shows the sampler.** The highest curve does not belong to the policy that is
#   best without the crutch. The cut hides mistakes, and what it hides is not trained away:
#   a mistake that is never drawn is never punished. (A penalty's log errs the other way.)
# - **Greedy evaluation is blind.** It asks for the likeliest token only, and calls nearly
#   all of these policies, the start included, perfect. Greedy and sampled evaluation
#   are two questions; say which one you ask. (Greedy is top-k 1.)
# - **Replay is no medicine for that.** It removes the mismatch (see K3), and it does not
#   learn better here. A cut logit gets no gradient of its own, but shared weights and the
#   normaliser move it all the same. DeepSeek-V3.2 *argues* that the mismatch destabilises
#   training, and *reports* of replay that it preserves language consistency; 40 steps of a
#   small model can show neither. One run each: only large gaps count.
#
# And the run with the largest K3, *penalty 1.1*, ends no worse than the one without a
# mismatch: **K3 says that two distributions differ, not that training fails.**
#
# ## Evaluate on the stack that serves
#
# Last: one policy, the run without a cut, on the stack where it was evaluated and on one
# that might serve it.

# %% tags=["anchor:deployment"]
serving = decoding(PRESETS["int4_weights"], repetition_penalty=1.2)
stacks = {
    "evaluation: FP32, T = 1": (Stack(), 13),
    "  with INT4 weights": (PRESETS["int4_weights"], 13),
    "  with penalty 1.2": (decoding(repetition_penalty=1.2), 13),
    "  with 12 tokens at most": (Stack(), 12),
    "serving: INT4, penalty 1.2": (serving, 13),
    "  and top-p 0.95": (decoding(serving, top_p=0.95), 13),
}
rows = {name: (policies["no cut"], *how) for name, how in stacks.items()}
table("no cut, on", rows)

# %% [markdown]
# Same weights in every row. No loss, no K3 and no gradient of the run could have told,
# because none of them ran on the serving stack: parameters that only the server sets are
# not in the training's logs. Look at length and format besides success, since they need no
# answer key; but they can miss what happened. Under the penalty alone, far fewer answers
# are right, and nearly all keep their format. And parts do
# not add up: one setting can hide what another breaks. So the rule is dull and firm:
# evaluate with the engine, the weights' format, the sampling parameters and the limits
# of the deployment, all of them together.
#
# ## The panel
#
# Try *top-p 0.9, rollout only*, then *mask replay: rollout* on the right. Then cut
# on the right alone, and read the message. Then report *raw* on the left.

# %% tags=["anchor:panel"]
panel(model, task, rollout=decoding(top_p=0.9))

# %% [markdown]
# ## For your own stack
#
# - Find out which processors the engine applies by default (`generation_config.json`), and
#   whether its logprobs come from before or after them.
# - If all ratios lie below 1, one side cuts: replay the kept set, or do not cut.
# - The logged reward is the sampler's. Evaluate by sampling, with the settings that serve.
#
# ## Check yourself
#
# Answer aloud, then open.
#
# <details><summary>Every ratio of a batch is below 1, the mean is 0.9. First guess?
# </summary>
#
# The engine cuts and reports processed logprobs, the trainer normalises over everything:
# the ratio is S. Check by enumeration of S, or sample without a cut.
# </details>
#
# <details><summary>Top-p 0.9. Why is S not 0.9?</summary>
#
# The token that crosses is kept, so S is 0.9 or more at each place, and its own there.
# </details>
#
# <details><summary>The engine samples at T = 0.7 and reports raw logprobs; the ratio is 1.
# Right?</summary>
#
# No. Raw is the model at T = 1; the token was drawn from another distribution. Divide the
# trainer's logits by 0.7 and take processed logprobs.
# </details>
#
# <details><summary>Which old logprob under top-p?</summary>
#
# The processed one, with the new one over the same kept set. With a new one over the full
# vocabulary the weight is right on what was drawn and blind to the tail.
# </details>
#
# <details><summary>Why record the kept set instead of recomputing top-p?</summary>
#
# Rounding moves the border; a sampled token outside the trainer's set has probability 0.
# </details>
#
# <details><summary>A penalty in the engine only. How does it show?</summary>
#
# Delta of both signs, and its sign depends on the history: on whether the likely token of
# a place stood before.
# </details>
#
# **Now write it yourself**: [lab 06](../labs/lab06_decoding/lab06_decoding.ipynb), eight
# functions, each checked at once.
#
# ## Where to read on
#
# - Top-k: arXiv 1805.04833; top-p: 1904.09751; min-p: 2407.01082
# - Repetition penalty: CTRL, arXiv 1909.05858
# - Keep sampling mask: DeepSeek-V3.2, arXiv 2512.02556; trl#6789, vllm#49577
# - Semantics of logprobs in engines: vllm#42259
#
# ## 中文小结
#
# 1. 温度、重复惩罚只重新分配概率；top-k、top-p、min-p 会截断，集合之外的概率严格为 0。
# 2. 采样参数是策略定义的一部分：两侧参数不同不是误差，而是两个不同的分布。
# 3. 采样端截断、训练端不截断时，每个 token 的 delta 恰好是 log S，比值恰好是 S，永远偏向一边。
# 4. raw 与 softmax 对得上，不代表对：两列数都可能不是真正抽样的分布。
# 5. 比值要对，old 必须取真正抽样所用的（processed）概率；温度可以靠权重完全修正。
# 6. 被截掉的尾部从未被抽到，权重无从施加，误差恰好等于新策略落在集合外的质量。
# 7. 训练端自己重算 top-p 会因舍入把已抽到的 token 判为不可能；应当重放采样时记录的集合。
# 8. 只在采样端加重复惩罚：delta 有正有负，符号取决于该位置的高概率 token 之前是否出现过。
# 9. 日志里的奖励属于采样器，不属于策略；贪心评估几乎分不出这些策略的好坏。
# 10. 重放能消除不一致，但在这里并没有学得更好；上线前要用真实的服务配置整体评估长度、格式和成功率。
