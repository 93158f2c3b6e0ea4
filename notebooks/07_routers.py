# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # MoE routers and R3
#
# > **In a mixture of experts each token chooses which part of the network computes it.
# > What if two engines with the same weights choose differently, and can one of them be
# > made to follow the other?**
#
# You will find the tokens whose choice hangs by a thread, watch rounding tip them, see
# what one other expert does to a logprob, and try three remedies: replaying the rollout's
# choice, replaying the trainer's own, and a penalty. 40 minutes to read, under a minute
# to compute.

# %%
from copy import deepcopy
from statistics import mean, median

import matplotlib.pyplot as plt
import torch
import transformers
from tqdm.auto import tqdm

from tinyrl.advantages import group_advantages
from tinyrl.checkpoints import HERE, load
from tinyrl.course import panel, style
from tinyrl.course.claims import claim, seed
from tinyrl.course.predictions import predict, reveal
from tinyrl.kernels import Kernels, Numerics
from tinyrl.metrics import compare
from tinyrl.moe import Router, balance_loss, expert_load
from tinyrl.objectives import grpo
from tinyrl.routing import compare_routes, flips
from tinyrl.scoring import score
from tinyrl.stack import PRESETS, Stack
from tinyrl.tasks import CumSum
from tinyrl.trainer import Recipe, generate, pass_rate, rl

torch.set_num_threads(1)  # the fast setting for a model this small
style.use()
moe, dense, task = load("moe"), load("sft"), CumSum()


def noise(offset):
    return torch.Generator().manual_seed(seed(offset))


# %% [markdown] tags=["anchor:router"]
# ## What a router does
#
# A **mixture of experts** has, in each layer, E small MLPs in place of one large one. A
# **router**, a single matrix, gives each token E logits; the token goes to the k experts
# with the largest, and their outputs are added with weights, the **gates**: a softmax
# over the k chosen logits. So a model holds many parameters and a token pays for few.
#
# The shipped mixture has eight experts in each of two layers and uses two. It was trained
# like the dense checkpoint of lesson 01, a little longer, with a **balance loss** that
# keeps all experts busy, and it solves the same task about as often. As wide where it is
# active, it is another model all the same: what differs below between it and the dense
# one need not come from routing.

# %%
prompts = task.prompts(256, noise(0))
batch = generate(moe, task, prompts, Stack(), noise(1))
P = prompts.shape[1]
r, at = batch.routes.of_response(P), (0, 2, 0)
print("the third token of the first answer, in the first layer")
print("logits", *(f"{x:.2f}" for x in r.logits[at]))
print("takes experts", r.experts[at].tolist(), "with gates",
      *(f"{x:.2f}" for x in r.gates[at]), f"; margin {r.margins[at]:.2f}")

# %% [markdown] tags=["anchor:folder"]
# This is the router of real models: the folder in which the mixture is shipped is a
# `Qwen3MoeForCausalLM` for `transformers`, and for engines that read such folders. The
# same tokens through their code:

# %%
transformers.utils.logging.disable_progress_bar()
hf = transformers.AutoModelForCausalLM.from_pretrained(HERE / "moe")
with torch.no_grad():
    theirs = hf(prompts, output_router_logits=True)
    logits, routes = moe.routed(prompts, Stack().ops())
z = torch.stack(theirs.router_logits, 1).view_as(routes.logits)
n = flips(routes.experts, z.topk(2).indices).sum()
far = (theirs.logits - logits).abs().max()
print(f"{type(hf).__name__}: logits apart by {far:.0e}, {n} choices differ")

# %% [markdown]
# The choice has no gradient. The gates do, and through them the router learns.
#
# The **margin** is how far the last expert that is in lies above the first that is out.
# Gates move a little when logits move a little; the *choice* jumps when the two change
# places, for which half the margin is error enough. A token that takes another expert is
# called a **flip** here: another *set* of experts, their order is no matter. A BF16 rollout
# keeps its routers in FP32, as some recipes do; the trainer is FP32 everywhere.

# %%
shares = ["none: the router is exact", "about 2 %", "about a third"]
question = "Tokens that take another expert than in training, in some layer?"
predict("07.flips", question, shares)

# %% tags=["anchor:precision"]
REPLAY = Stack(router=Router(replay="rollout"))


engines = {
    "FP32": Stack(),
    "FP32, split 4 ways": Stack(kernels=Kernels(tensor_parallel=4)),
    "BF16 sums": Stack(Numerics(partial="bf16"), Kernels(tensor_parallel=2)),
    "router alone BF16": Stack(Numerics(router="bf16")),
    "FP16": PRESETS["fp16"],
    "BF16": PRESETS["bf16"],
    "BF16, router too": Stack(Numerics("bf16", "bf16", router="bf16")),
    "FP8": Stack(Numerics("fp8_e4m3", "fp8_e4m3")),
    "INT4 weights": PRESETS["int4_weights"],
}


@torch.no_grad()
def sides(m, rollout, b, *trainers):
    # Batch b of model m under a rollout stack; what each trainer makes of it.
    p = task.prompts(256, noise(100 + b))
    x = generate(m, task, p, rollout, noise(200 + b))
    return x, *(score(m, x.prompt, x.response, t, x.routes) for t in trainers)


seen, compared, rate = {}, {}, {}
print(f"{'rollout':20}{'layer 0':>9}{'layer 1':>9}{'tokens':>9}{'drift':>9}")
for name, engine in engines.items():
    seen[name] = [sides(moe, engine, b, Stack(), REPLAY) for b in range(5)]
    c = compared[name] = [compare_routes(x, own) for x, own, _ in seen[name]]
    layers = [mean(x.flips[layer] for x in c) for layer in range(2)]
    rate[name] = mean(x.flipped_tokens for x in c)
    numbers = *layers, rate[name], mean(max(x.drift) for x in c)
    print(f"{name:20}" + "".join(f"{x:9.2%}" for x in numbers))
deep = 1 - (1 - rate["BF16"] / 2) ** 48
print(f"BF16 at this rate in 48 independent layers: {deep:.0%} of tokens flip")
print(f"flips of BF16 over those of FP16: {rate['BF16'] / rate['FP16']:.1f}")
reveal("07.flips", shares[(rate["BF16"] > 0.001) + (rate["BF16"] > 0.1)])

# %% [markdown]
# An FP32 router does not help a token whose *input* to the router was rounded in BF16
# (compare the two BF16 rows). And flips multiply: each token passes every layer, and one
# flip anywhere sends what follows another way. R3's paper (arXiv 2510.11370) reports
# that about a tenth of the routers of a large model choose differently between engines,
# and nearly every token in some layer. Two layers and eight experts are gentle.
#
# ## Near-ties tip
#
# Where do flips happen? If rounding tips them, where margins are small.

# %% tags=["anchor:boundary"]
def margins(name):
    # Margin and flip of each real token, side by side in its layers.
    found = []
    for x, own, _ in seen[name]:
        ours, theirs = (y.routes.of_response(P) for y in (own, x))
        flip = flips(ours.experts, theirs.experts)
        found.append((ours.margins[x.mask], flip[x.mask]))
    return (torch.cat(x) for x in zip(*found))


fig, (left, right) = plt.subplots(1, 2)
margin, _ = margins("BF16")
how = dict(bins=60, range=(0, 1.5), histtype="step")
left.hist(margin.numpy(), color=[style.QUIET, style.INK], **how)
left.legend(left.patches[::-1], ("layer 0", "layer 1"))
style.label(left, "Many tokens nearly tie", "margin", "tokens")
edges = torch.logspace(-3.5, 0.5, 13)
colours = (style.GOOD, style.TRAIN, style.ROLLOUT, style.BAD)
for name, colour in zip(("FP16", "BF16", "FP8", "INT4 weights"), colours):
    margin, flip = (x.flatten() for x in margins(name))
    bins = torch.bucketize(margin, edges)
    curve = [flip[bins == i].double().mean() for i in range(1, 13)]
    right.semilogx(edges[:-1] * 1.36, curve, "o-", ms=3, color=colour)
right.legend(right.lines, ("FP16", "BF16", "FP8", "INT4 weights"))
style.label(right, "Small margins flip", "margin", "share that flips")
plt.show()

# %% [markdown]
# Training puts no margin between experts: the density does not vanish at zero, so some
# token always sits on the edge, and half the error makes about half the flips. (BF16 has
# three mantissa bits fewer than FP16, so eight times the error: see the factor printed
# above.) Each format's curve falls where the margin passes the errors that it makes in two
# logits; far left a flip is a coin toss.

# %%
near = {}
for name in ("BF16", "INT4 weights"):
    margin, flip = margins(name)
    close = margin < margin.quantile(0.05)
    near[name] = ((flip & close).sum() / flip.sum()).item()
what = "share of BF16's flips among the 5 % smallest margins (control: INT4)"
claim(what, near["BF16"], at_least=0.7, control=near["INT4 weights"])

# %% [markdown] tags=["anchor:parallel"]
# ## A parallel split can be enough
#
# Rollout and trainer rarely split a model over the same number of machines. Each rank then
# sums its part of a product, and the parts are added: another order of addition. Look at
# the rows *FP32, split 4 ways* and *BF16 sums* (of two ranks) above. In FP32 the order
# moves the last bits, and hardly any token is that near to a tie; sent in BF16, as
# all-reduces do in a BF16 engine, the partial sums flip tokens although all else is FP32.
# So what flips is not the split but the format in which its sums travel.
#
# ## A mixture against a dense model
#
# Now the logprobs. Each dot is one batch of 256 answers; *replayed* is the mixture with
# the rollout's routes followed in the trainer, of which more below.

# %%
answers = ["under every format", "under some", "under none"]
predict("07.larger", "When is K3 larger in the mixture than dense?", answers)

# %% tags=["anchor:larger"]
def k3(x, scored):
    return compare(x.logp_rollout, scored.logp, x.mask).k3


formats = ["FP16", "BF16", "FP8", "INT4 weights", "router alone BF16"]
k3s = {}
for name in formats:
    both = [sides(dense, engines[name], b, Stack()) for b in range(5)]
    k3s["dense", name] = [k3(x, own) for x, own in both]
    k3s["mixture", name] = [k3(x, own) for x, own, _ in seen[name]]
    k3s["replayed", name] = [k3(x, r) for x, _, r in seen[name]]
fig, ax = plt.subplots()
xs = torch.arange(5)[:, None] + 0.02 * torch.arange(-2, 3)
colours = (style.QUIET, style.ROLLOUT, style.GOOD)
for i, arm in enumerate(("dense", "mixture", "replayed")):
    ys = torch.tensor([k3s[arm, name] for name in formats]).clamp(min=1e-9)
    at = (xs + 0.2 * (i - 1)).flatten()
    ax.semilogy(at, ys.flatten(), "o", color=colours[i], label=arm)
ax.set_xticks(range(5), formats)
fig.legend(loc="outside lower center", ncols=3)
style.label(ax, "Replay lowers K3 (0 drawn at 1e-9)", "", "K3, nats")
plt.show()
means = {key: mean(values) for key, values in k3s.items()}
larger = [means["mixture", x] > means["dense", x] for x in formats[:4]]
reveal("07.larger", answers[0 if all(larger) else 1 if any(larger) else 2])

# %% [markdown]
# Read it in two steps. Orange against green is one model with and without its flips: that
# is what routing adds. Grey, the dense one, is another model, and at coarse formats it is
# the *worse* one here: this mixture happens to round more quietly, and where everything is
# off by a lot a flip adds little. Where little else is off (FP16, the router alone) a
# mixture's K3 is made of a few flips, and batches of one engine differ many times over.
# **The mean of a few flips is no number to rank anything by: look at each seed.** That a
# mixture has more mismatch than a dense model is what large runs report (K3 of 1e-3 to 1e-1
# against 1e-5 to 1e-3). Here routing adds to each format; whether the sum is larger than a
# dense model's is another matter.

# %% [markdown] tags=["anchor:given-a-flip"]
# ## The mismatch, given a flip
#
# The route is part of the policy: two engines that route differently compute two policies.
# Split tokens by what happened to them: did they take another expert in some layer?

# %%
fig, axes = plt.subplots(1, 2, sharey=True)
for ax, name in zip(axes, ("BF16", "FP8")):
    _, flip = margins(name)
    d = [(own.logp - x.logp_rollout)[x.mask] for x, own, _ in seen[name]]
    size = torch.cat(d).abs().clamp(min=1e-7).log10()
    for some, colour in ((False, style.QUIET), (True, style.ROLLOUT)):
        how = dict(bins=40, range=(-7, 0.5), density=True, histtype="step")
        ax.hist(size[flip.any(-1) == some], color=colour, **how)
    title = f"{name}: {flip.any(-1).sum()} of {len(flip)} tokens flip"
    style.label(ax, title, "log10 |delta|", "density")
axes[0].legend(axes[0].patches, ("same experts", "flipped"), loc="upper left")
plt.show()
given = {}
for name in ("router alone BF16", "BF16", "FP8", "INT4 weights"):
    given[name] = [c.delta_flipped / c.delta_kept for c in compared[name]]
    each = " ".join(f"{x:5.1f}" for x in given[name])
    print(f"{name:18} mean |delta|, flipped over kept, by batch: {each}")

# %% [markdown]
# Under BF16 a flip makes a token's delta many times larger: the token has been through
# another part of the network. Under FP8 and INT4 the rest of the noise has nearly caught
# up. (Not every flip hurts. Near a tie both experts have nearly the same gate, and the
# one that goes is replaced by one of equal weight; what they *compute* may differ or not.
# And a flip early in a prompt moves all that follows, also tokens that kept theirs.)

# %%
what = "mean |delta| of flipped over kept tokens, BF16 (control: FP8)"
claim(what, given["BF16"], at_least=4, of="batches", control=given["FP8"])

# %% [markdown] tags=["anchor:drift"]
# ## Who does the work
#
# Flips also move **load**. If the rollout's engine sends tokens elsewhere, its experts see
# other data than the trainer's, and an expert whose tokens come and go is trained on a
# moving target: routing that is unstable. *Drift*, here of load and not of the policy as in
# lesson 01, is half the sum of the absolute differences of the loads, the share of choices that moved, net. It is the last column of
# the first table, and smaller than the flip rate: a flip moves one of a token's two
# choices, and flips there and back cancel. The balance loss has evened the load over all
# tokens; over answers alone, as here, it is not even, and no engine's fault.

# %%
c = compared["INT4 weights"][0]
print("INT4, the first batch: load of each expert (even: 0.125)")
for i, drift in enumerate(c.drift):
    print(f"layer {i}: drift {drift:.1%}, tokens that flip {c.flips[i]:.1%}")
    print("  rollout", *(f"{x:.3f}" for x in c.load_rollout[i]))
    print("  trainer", *(f"{x:.3f}" for x in c.load_train[i]))

# %% [markdown] tags=["anchor:r3"]
# ## R3: follow the rollout
#
# **Rollout routing replay** (arXiv 2510.11370) records the experts that each token took
# in the rollout, k small numbers for each token and layer, and lets the trainer take the
# same. Only the *set* is replayed. The gates are recomputed from the trainer's own logits
# over that set,
#
# $$g_e = \frac{\exp z^\text{train}_e}
# {\sum_{j \in S^\text{rollout}} \exp z^\text{train}_j},$$
#
# for two reasons: they carry the router's gradient, and with the rollout's gates the
# trainer would not compute its own policy. Here is one token that flips under BF16.

# %%
x, own, replayed = seen["BF16"][0]
took, chose, given_ = (y.routes.of_response(P) for y in (x, own, replayed))
flip = flips(took.experts, chose.experts) & x.mask[..., None]
b, t, layer = flip.nonzero()[0]
for who, r, logp in (("rollout took", took, x.logp_rollout),
                     ("own choice", chose, own.logp),
                     ("replayed", given_, replayed.logp)):
    pairs = zip(r.experts[b, t, layer], r.gates[b, t, layer])
    told = ", ".join(f"expert {e} for {g:.4f}" for e, g in pairs)
    print(f"{who:13} {told}; logprob {logp[b, t]:.4f}")
live = score(moe, x.prompt, x.response, REPLAY, x.routes).logp[x.mask].mean()
(g,) = torch.autograd.grad(live, moe.layers[1].mlp.gate.weight)
print(f"gradient of the mean logprob on a router, replayed: {g.norm():.4f}")

# %%
falls = {}
for name in formats:
    pairs = zip(k3s["mixture", name], k3s["replayed", name])
    falls[name] = [without / replayed for without, replayed in pairs]
    each = " ".join(f"{x:6.1f}" for x in falls[name])
    print(f"{name:18} K3 without over with replay, by batch: {each}")
what = "K3 without over with replay: median, router in BF16 (control: INT4)"
alone, coarse = falls["router alone BF16"], falls["INT4 weights"]
claim(what, median(alone), at_least=5, control=median(coarse))

# %% [markdown]
# Replay takes the jumps away and leaves the rounding. Where routing was the whole fault it
# removes nearly all of it; under INT4, where every number is off, it removes a part.
# It repairs nothing that is not of routers: a wrong template or temperature stays.
#
# ## R2: follow yourself
#
# Flips also happen *inside* the trainer. Old logprobs are computed, then come several
# updates on the same batch, and each changes the router a little: new and old then differ
# by flips. GSPO's paper (arXiv 2507.18071) counts about a tenth of the experts changed
# by one update of a large mixture. **R2** replays the routes of the pass that computed the
# old logprobs. That pass itself chooses, so R2 does nothing about the other engine.

# %% tags=["anchor:r2"]
moved = deepcopy(moe)
next(rl(moved, task, generator=noise(2), recipe=Recipe(warmup=1)))
R2 = Stack(router=Router(replay="train"))
tokens = batch.prompt, batch.response
with torch.no_grad():
    old = score(moe, *tokens, Stack())
    free = score(moved, *tokens, Stack())
    fixed = score(moved, *tokens, R2, old_routes=old.routes)
was, now, tied = (x.routes.of_response(P) for x in (old, free, fixed))
flip = flips(was.experts, now.experts).any(-1)[batch.mask]
gates = (was.gates - tied.gates)[batch.mask].abs().mean()
print(f"tokens that flip within one RL step: {flip.double().mean():.1%};",
      f"under R2 {flips(was.experts, tied.experts).sum()}")
print(f"under R2 the gates, recomputed, move by {gates:.4f}")
for name, new in (("own choice", free), ("R2", fixed)):
    d = (new.logp - old.logp)[batch.mask].abs()
    print(f"{name:11} mean |log ratio| {d.mean():.4f}, of flipped tokens "
          f"{d[flip].mean():.4f}; above 0.2: {(d > 0.2).double().mean():.2%}")

# %% [markdown]
# Honest result: many tokens flip within a step, and it matters little here. An update
# moves all logprobs, on purpose (0.2 is where PPO clips, about), and flips add little.
# Where it does matter, replay is one answer; a ratio over whole sequences (GSPO,
# lesson 08) another.
#
# ## The panel
#
# The same mixture with every knob. Try *router: BF16* on the left alone, then *replay:
# rollout* on the right; then *INT4 weights* with and without replay.

# %% tags=["anchor:panel"]
panel([moe], task, rollout=engines["router alone BF16"])

# %% [markdown] tags=["anchor:consistency"]
# ## The other remedy: make them agree
#
# Instead of forcing the trainer's choice, add a penalty that draws its router to the
# rollout's: KL(rollout's router || trainer's), mean over tokens and layers. INT4 rollouts,
# GRPO, old logprobs recomputed. Four runs from one start.

# %%
endings = ["fewer flips, and it learns", "fewer flips; it forgets", "no effect"]
predict("07.penalty", "A strong penalty on the router gives ...", endings)

# %%
def train(recipe, rollout, trainer=Stack()):
    # A run from the shipped mixture: its steps, its end, its last policy.
    policy = deepcopy(moe)
    how = dict(rollout_stack=rollout, train_stack=trainer, recipe=recipe)
    run = rl(policy, task, generator=noise(3), steps=25, **how)
    steps = list(tqdm(run, total=25, leave=False))
    return steps, pass_rate(policy, task, Stack(), noise(4), n=1024), policy


remedies = {"nothing": (Recipe(), Stack()), "R3": (Recipe(), REPLAY)}
for weight in (1, 10):
    remedies[f"penalty {weight}"] = Recipe(consistency=weight), Stack()
colours = (style.QUIET, style.GOOD, style.DELTA, style.BAD)
born = pass_rate(moe, task, Stack(), noise(4), n=1024)
final, flipping = {}, {}
fig, axes = plt.subplots(1, 3, figsize=(style.WIDTH, 3.1))
for colour, (name, (recipe, trainer)) in zip(colours, remedies.items()):
    steps, final[name], _ = train(recipe, PRESETS["int4_weights"], trainer)
    flip = flipping[name] = [s.routes.flipped_tokens for s in steps]
    axes[0].plot([s.reward for s in steps], color=colour, label=name)
    axes[1].plot(flip, color=colour)
    axes[2].semilogy([s.mismatch.k3 for s in steps], color=colour)
    print(f"{name:11} flips {mean(flip[:5]):.1%} -> {mean(flip[-5:]):.1%}, "
          f"pass rate {born:.2f} -> {final[name]:.2f}")
for ax, title in zip(axes, ("Reward, rollouts", "Share of flips", "K3, nats")):
    style.label(ax, title, "step")
fig.legend(loc="outside lower center", ncols=4)
plt.show()

# %% [markdown]
# A strong penalty does lower the flip rate. But a router's logits are computed from the
# stream that carries everything else, so its gradient reshapes that stream, and what is
# strong enough to be felt costs the policy what it knew. The pictures show the rest: what
# becomes of K3 (it need not fall with the flips), and what even the weak penalty does to
# the rollouts' reward. These few steps do not make it a remedy, which does not prove that
# no schedule would. Replay needs no gradient at all.
#
# R3 removes every flip. Compare its pass rate with that of doing nothing: one run each, so
# only a large difference would count. The collapse that R3's paper cures is not seen **at
# this size**; what is seen is the mismatch, and that replay removes its part.

# %%
what = "pass rate over that of the start, INT4, penalty 10 (control: none)"
strong, none = (final[name] / born for name in ("penalty 10", "nothing"))
claim(what, strong, at_most=0.6, control=none)
fewer = mean(flipping["penalty 10"][-5:]) < mean(flipping["nothing"][-5:])
reveal("07.penalty", endings[2 if not fewer else 0 if strong > 1 else 1])

# %% [markdown] tags=["anchor:balance"]
# ## Balance against reward
#
# Left alone, routers come to prefer some experts, and machines idle. The usual cure adds a
# loss (Switch, arXiv 2101.03961, eq. 4): $E \sum_e f_e P_e$, with $f$ how often each
# expert is chosen and $P$ its mean probability. It knows nothing of reward. Do the two
# pull apart? First their gradients on the routers, eight batches; then short runs.

# %%
gates = [layer.mlp.gate.weight for layer in moe.layers]


def pulls(b):
    # The gradients on the routers of the RL loss and of the balance loss.
    asked = task.prompts(12, noise(300 + b)).repeat_interleave(8, 0)
    x = generate(moe, task, asked, Stack(), noise(400 + b))
    s = score(moe, x.prompt, x.response, Stack())
    A = group_advantages(task.reward(x.prompt, x.response, x.mask), 8)
    for loss in (grpo(s.logp, s.logp.detach(), A, x.mask),
                 balance_loss(s.routes, x.read)):
        grads = torch.autograd.grad(loss, gates, retain_graph=True)
        yield torch.cat([g.flatten() for g in grads])


pairs = torch.stack([torch.stack([*pulls(b)]) for b in range(8)])  # [8, 2, n]
each = torch.cosine_similarity(pairs[:, 0], pairs[:, 1])
print("cosine of the two gradients, by batch:", *(f"{x:+.2f}" for x in each))
both = pairs.mean(0)
print(f"of their means {torch.cosine_similarity(*both, 0):+.2f};",
      "norms {:.3f} (RL), {:.3f} (balance)".format(*both.norm(dim=1)))
print(f"before: largest load {expert_load(batch.routes, batch.read).max():.3f}")
for weight in (0.0, 1.0, 100.0):
    _, last, policy = train(Recipe(balance=weight), Stack())
    x = generate(policy, task, prompts, Stack(), noise(5))
    top = expert_load(x.routes, x.read).max()
    print(f"weight {weight:3g}: largest load {top:.3f}, pass rate {last:.2f}")

# %% [markdown]
# A negative cosine says that the step which evens the load raises the RL loss: the
# objectives pull apart on the router. Near zero neither disturbs the other. Batches
# scatter widely, so take the sign of the means and not its size.
#
# Look at the loads, too. This mixture was even before, and RL upsets it little within these
# steps, so there is little to repair; and a largest load is a noisy number. Weights in use
# are 0.001 to 0.01. A far larger one takes a larger share of each update, and less is left
# for reward. The pass rates are one run each, enough to see a large price and not a small
# one. With many experts and long training the price may rise: an expert that is
# right for a task and overloaded is taken from it. Alternatives move no gradient: a bias
# on the logits that decides the choice and not the gates (arXiv 2408.15664).
#
# ## For your own stack
#
# - Log the share of tokens that flip, and |delta| of flipped and other tokens apart: a few flips
#   can be all of K3.
# - Routers in FP32 do not prevent flips. Replay the rollout's routes, and see how far K3 falls:
#   that part was the router's.
# - Compare several batches before you rank anything.
#
# ## Check yourself
#
# Answer aloud, then open.
#
# <details><summary>Why can a mixture amplify an error of 1e-3 in a hidden state?</summary>
#
# The choice of experts is a step function of logits. Where the k-th and the next nearly
# tie, an error of half the margin in each of the two, towards each other, is enough to
# send the token through other weights.
# </details>
#
# <details><summary>Routers in FP32 on both sides. Can there be flips?</summary>
#
# Yes. What enters the router differs as soon as anything before it does: format, kernel,
# or the order in which ranks are added.
# </details>
#
# <details><summary>R3 and R2: what does each hold fixed, and between what?</summary>
#
# R3: the rollout's experts, between the engine and the trainer. R2: the experts of the
# trainer's old pass, between old and new logprobs. Gates are recomputed in both.
# </details>
#
# <details><summary>Why not replay the gates as well?</summary>
#
# They would be constants: no gradient for the router, and a probability that is not the
# trainer's.
# </details>
#
# <details><summary>K3 is 5e-5 on one batch and 5e-6 on the next. What do you look at?</summary>
#
# Whether a few tokens carry it: |delta| by flip, the largest |delta|, several seeds.
# </details>
#
# **Now write it yourself**: [lab 07](../labs/lab07_routers/lab07_routers.ipynb), eight
# functions, each checked at once.
#
# ## Where to read on
#
# - R3: arXiv 2510.11370; routing replay and why GSPO needs none: arXiv 2507.18071
# - Switch: arXiv 2101.03961; GShard: arXiv 2006.16668
# - Balance without a loss: arXiv 2408.15664
# - The shape of this mixture, Qwen3-MoE: arXiv 2505.09388
#
# ## 中文小结
#
# 1. MoE 的每一层有许多小专家；路由器给出 logits，每个 token 只走得分最高的 k 个。
# 2. 选择是阶跃的：第 k 名与下一名几乎相等时，极小的舍入就会换掉专家，这叫翻转。
# 3. 路由器本身用 FP32 也不够：它的输入若经过 BF16 舍入，翻转照样发生。
# 4. BF16 的翻转几乎都落在间隔最小的那一小部分 token 上；格式越粗，越不看间隔。
# 5. 两侧张量并行的切分不同，部分和以 BF16 相加，也足以造成翻转。
# 6. BF16 下翻转 token 的 |delta| 是其余 token 的数倍；少数翻转决定 K3，所以要逐个种子看。
# 7. R3 让训练端沿用采样端选出的专家，权重由训练端的 logits 在该集合上重新计算，路由器仍有梯度。
# 8. R2 沿用训练端计算 old logprob 时的选择，只管多次更新之间的翻转，不管两个引擎之间的。
# 9. 一致性惩罚能减少翻转，但强到有效时会毁掉策略；在这个规模上看不到 R3 论文所治的崩溃。
# 10. 均衡损失与 RL 目标在路由器上的梯度方向并不一致；每个系数只跑了一次，小的代价看不出来。
