# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The interview
#
# > **Two engines, one checkpoint, other logprobs. What is that, where does it come from,
# > what does it do, what would you do? Can you answer in five minutes, with numbers that
# > you have seen, and then find a fault that nobody has told you of?**
#
# You will build the four-layer answer out of one fault; put five algorithms into one table;
# take apart an engine whose faults the seed has drawn, so that even this text does not know them;
# measure which part of a design pays when; and then be asked. Hardly anything here is new:
# every line leads back to the lesson that shows it. 50 minutes to read, half a minute to
# compute, and as long with the cards as you like.

# %%
import random
from itertools import permutations
from statistics import mean, quantiles

import matplotlib.pyplot as plt
import torch
from IPython.display import Markdown

from tinyrl import objectives as O
from tinyrl.checkpoints import load
from tinyrl.course import drill, style
from tinyrl.course.claims import claim, seed
from tinyrl.course.interview import cases
from tinyrl.course.lessons.one_update import answered, first_update
from tinyrl.course.predictions import predict, reveal
from tinyrl.metrics import compare, ess
from tinyrl.runs import digest
from tinyrl.scoring import response_logits, score
from tinyrl.stack import PRESETS, diff, replace_at
from tinyrl.tasks import CumSum
from tinyrl.trainer import Trainer, generate, pass_rate

torch.set_num_threads(1)  # the fast setting for a model this small
style.use()
policy, task, tok = load("sft"), CumSum(), CumSum().tokenizer
FP32, INT4, EXACT = map(PRESETS.get, ("fp32", "int4_weights", "true_on_policy"))


def noise(offset):
    return torch.Generator().manual_seed(seed(offset))


asked = task.prompts(256, noise(0))


def changed(stack, fields):
    for path, value in fields.items():
        stack = replace_at(stack, path, value)
    return stack


@torch.no_grad()
def pair(engine, trainer=FP32, read=None, who=policy, weights=None, ask=asked):
    # What the engine sampled, and how far the trainer's score of it is off.
    x = generate(who, task, ask, engine, noise(1))
    s = score(weights or who, ask if read is None else read, x.response,
              trainer, x.routes)
    return x, compare(x.logp_rollout, s.logp, x.mask)


# %% [markdown] tags=["anchor:four-layers"]
# ## One fault through four layers
#
# Definition, sources, effect, remedy, in this order (lesson 00). An answer can hold every fact
# and fail at the *order*: remedies before anybody knows what is wrong, sources for five minutes
# and no effect. So sort sentences first. Each of the first three is true of the fault below: to
# which layer does it belong? The fourth is a candidate's answer: which layer does it leave out?
# The answers come where the numbers are.

# %%
LAYERS = ["definition", "source", "effect", "remedy"]
predict("12.ratio", "“The ratio starts at 1, K3 is what it was.”", LAYERS)
predict("12.clip", "“PPO stops tokens before anything was learned.”", LAYERS)
predict("12.token", "“This token is far likelier here than there.”", LAYERS)
predict("12.missing", "“A token has two probabilities, from formats, kernels, "
        "samplers. I would align, recompute.”", [f"no {x}" for x in LAYERS])

# %% [markdown]
# The fault: rollouts from INT4 weights, a trainer in FP32. **Layer 1, the definition**, is one
# token with two probabilities. Here is the one of this batch that shows it most, after its
# prompt and the answer up to it.

# %% tags=["anchor:definition"]
b = answered(policy, task, asked[:48], INT4, noise(2))
new, old = b.logp.detach(), b.x.logp_rollout
i, t = divmod(b.d.abs().argmax().item(), b.d.shape[1])
print(tok.decode(b.x.prompt[i], True), "|", tok.decode(b.x.response[i, :t + 1]))
print(f"engine's p {old[i, t].exp():.3f}, trainer's {new[i, t].exp():.3f}")
reveal("12.token", LAYERS[0])

# %% [markdown]
# **Layer 2, the source.** Weights, tokens, stack, what the loss sees: these four decide a
# logprob and its use. Here they differ in the stack alone, in one field:

# %% tags=["anchor:sources"]
print(diff(INT4, FP32))

# %% [markdown]
# **Layer 3, the effect.** Nothing was learned yet, so every ratio should be 1, the KL 0, and no
# token stopped. With the engine's logprobs as the old ones (the cosine is with the gradient that
# the same answers give at ratio 1):

# %% tags=["anchor:effect"]
seen, ppo = compare(old, new, b.mask), first_update(O.ppo, b)
print(f"ratios {seen.ratio_min:.2g} to {seen.ratio_max:.2g}, “approximate KL” "
      f"(K1) {seen.k1:.3f}, K3 {seen.k3:.3f}\nPPO stops {ppo.stopped:.1%} of "
      f"the tokens that push; its gradient's cosine is {ppo.cosine:.2f}")
reveal("12.clip", LAYERS[2])

# %% [markdown]
# **Layer 4, the remedy.** Say what each *leaves*, for none leaves nothing. *Reward told* is what
# the batch makes you believe of the trainer's own policy, a (weighted) mean reward; the last line
# has the truth, on other samples.

# %% tags=["anchor:remedy"]
good = answered(policy, task, asked[:48], FP32, noise(2))
product, equal = b.d.sum(1).exp(), torch.ones(len(b.A))
print(f"{'':28}K3      ratios         ESS   reward told")
for name, g, anchor, w in (
        ("nothing, rollout's as old", b, old, equal),
        ("recompute", b, new, equal), ("recompute, weights", b, new, product),
        ("align: engine in FP32", good, good.logp, equal)):
    m, r = (compare(a, g.logp, g.mask) for a in (g.x.logp_rollout, anchor))
    print(f"{name:26}{m.k3:7.0e}{r.ratio_min:7.2f} to {r.ratio_max:.2f}"
          f"{ess(w.log()):8.0%}{(w * g.reward).sum() / w.sum():12.3f}")
own, served = (pass_rate(policy, task, s, noise(3), 2048) for s in (FP32, INT4))
print(f"pass rate in 2,048 answers: trainer's {own:.3f}, INT4's {served:.3f}")
reveal("12.ratio", LAYERS[3])
reveal("12.missing", "no effect")

# %% [markdown]
# Recomputing sets the ratio right and **leaves K3 as it is**: the samples are still the engine's,
# and so is the reward in the log. Weights leave K3 as well; they pay with sample size for moving
# an estimate towards the trainer's policy. (One batch need not show it. Lesson 09 has bias and
# noise exactly, and a case where nothing is the right correction.) Only aligning takes the
# mismatch away, and it costs what INT4 was bought for. *Which policy do you deploy?* is a fair
# question back.
#
# The candidate left out the **effect**: the layer that says why anybody should care. Now build
# your own answer, aloud, one sentence a layer, a number from above in each; then compare:
#
# <details><summary>One answer</summary>
#
# "The policy that sampled a token and the one that is trained give it different probabilities,
# from the same weights file. Sources are whatever else decides a logprob: tokens, formats,
# kernels, sampler, the weights' version; here four-bit weights. So ratios are off 1 before
# the first update, a clip stops the wrong tokens and the gradient turns. I align what is a bug,
# recompute old logprobs, go on comparing them with the rollout's, and weigh what remains if that
# pays."
# </details>

# %% [markdown]
# ## Five algorithms in five minutes
#
# One fault: the sampler's temperature is **1.2**, the trainer knows nothing of it, and old
# logprobs are the engine's. Then its mirror image, **0.8**, whose K3 is about as large. Three batches
# of each. *Push over right* is a token's push over what it would be at ratio 1, from the 5th to the
# 95th percentile, and the largest: the width of what the fault does to single tokens.

# %%
predict("12.mirror", "Which turns PPO's gradient more?", ["1.2", "0.8"])

# %% tags=["anchor:five"]
cosine = {}
for T in ("1.2", "0.8"):
    one = changed(FP32, {"sampler.temperature": float(T)})
    drawn = [answered(policy, task, task.prompts(32, noise(k)), one,
                      noise(k + 1)) for k in (10, 12, 14)]
    k3 = mean(compare(g.x.logp_rollout, g.logp, g.mask).k3 for g in drawn)
    print(f"T = {T}, K3 {k3:.3f}    stopped   cosines{'':15}push over right")
    for name in ("PPO", "GRPO", "GSPO", "DAPO", "SAPO"):
        f, pushes = getattr(O, name.lower()), []
        found = [first_update(f, g) for g in drawn]
        for u, g in zip(found, drawn):
            loss = f(g.logp, g.logp.detach(), g.A, g.mask)  # ratios at 1
            (v,) = torch.autograd.grad(loss, g.logp, retain_graph=True)
            pushes += (u.push / v)[g.pushed].tolist()
        low, *_, high = quantiles(pushes, n=20)
        cosine[T, name] = [u.cosine for u in found]
        print(f"  {name:16}{mean(u.stopped for u in found):11.1%}  ",
              *(f"{c:+6.2f}" for c in cosine[T, name]),
              f"  {low:.2f} to {high:.2f}, largest {max(pushes):.1f}")
warm, cold = (cosine[T, "PPO"] for T in ("1.2", "0.8"))
reveal("12.mirror", "1.2" if mean(warm) < mean(cold) else "0.8")
claim("PPO's cosine with the right gradient, sampler at T = 1.2 (control: 0.8)",
      warm, at_most=0.8, of="batches", control=cold)

# %% [markdown] tags=["anchor:algorithms"]
# K3 is of one size, the harm is not. **Size does not tell the harm; sign and place do.**
# A hot sampler takes unlikely tokens more often than the trainer would. Their ratios are
# below 1, their answers mostly fail, and the clip reads "pushed down enough". A cold
# sampler gives unlikely tokens ratios *above* 1, and where the advantage is negative no
# side of PPO's clip holds these: nothing is stopped, and the largest push is several
# times the right one. In words:
#
# | | ratio of | what the fault does to it | what it offers |
# |---|---|---|---|
# | PPO | token | a hard clip around a wrong centre: all or nothing | old logprobs recomputed; **dual clip** holds the largest pushes |
# | GRPO | token | the same clip; where success is rare few answers carry the advantages, and these may be the wrong ones | no critic that could be wrong; Dr. GRPO drops the division |
# | GSPO | response | noise averages out over length, an error of one sign stays; an answer is stopped whole; the band is hundreds of times narrower | one weight for all tokens of an answer: none dominates |
# | DAPO | token | PPO's clip; the wider upper side is no help to tokens that leave below; the engine's rewards choose its groups | no dead groups |
# | SAPO | token | pushes shrink smoothly, none stops, so no clip fraction rings | keeps the direction under a wrong centre |
#
# The table ranks nobody: one small policy, the first update, two faults, short answers (lesson 08
# has GSPO by length and width); and a gradient's cosine is not a pass rate. Lesson 08 trained
# GRPO, GSPO and SAPO on an engine's logprobs with two seeds, DAPO with one; what it claims is that
# a hard clip around the wrong centre destroys a run, and that recomputing or opening it saves it.
# **None of the five makes the two logprobs agree.**

# %% [markdown]
# ## Finding the fault, in eight steps
#
# The engine computes in BF16 with kernels of its own. That is *agreed*, and its delta, the
# **floor**, is on record. Since yesterday two settings of the engine are not what they were, the
# trainer loads another template, and its mask has changed. Which, the seed of this run has drawn:
# this text cannot tell you.

# %%
OTHER = {"kernels.attention": "online", "kernels.norm": "unfused",
         "kernels.logsumexp": "chunked", "kernels.tensor_parallel": 2}
AGREED = changed(PRESETS["bf16"], OTHER)
SUSPECTS = {"numerics.kv": "int4", "numerics.weights": "int4",
            "sampler.temperature": 1.1, "sampler.repetition_penalty": 1.05}
TEMPLATES = {"<bos> twice": torch.cat([asked[:, :1], asked], 1), "right": asked,
             "no <bos>": asked[:, 1:], "turn not opened": asked[:, :-1]}
pick, paths = random.Random(seed(30)).choice, [*SUSPECTS]
injected = [pick(paths[:2]), pick(paths[2:])]
engine = changed(AGREED, {path: SUSPECTS[path] for path in injected})
theirs = TEMPLATES[pick(sorted(TEMPLATES.keys() - {"right"}))]
x, today = pair(engine, read=theirs)
counted, floor = x.mask & (x.response != tok.eos_id), pair(AGREED)[1].mean_abs
print(f"mean |d| today {today.mean_abs:.3f}, on record {floor:.4f}")

# %% [markdown]
# **Step 1: freeze the checkpoint.** One file, learning rate 0, and a digest of what each side has
# *loaded*. For comparison, the delta of one update that arrived on one side only:

# %% tags=["anchor:checkpoint"]
trainer = Trainer(load("sft"), task, generator=noise(4))
trainer.step()
late = pair(AGREED, weights=trainer.model)[1].mean_abs
print(f"engine {digest(policy)[:8]}, trainer {digest(load('sft'))[:8]}; one "
      f"update on: {digest(trainer.model)[:8]}, mean |d| {late:.4f}\n"
      "ruled out: versions, a delta not merged, an update that never came")

# %% [markdown]
# **Step 2: freeze prompt and response**, as ids. Sampling once more draws other tokens, and then
# means differ for no reason at all:

# %% tags=["anchor:frozen-tokens"]
y = generate(policy, task, asked, engine, noise(5))
first, second = (a.logp_rollout[a.mask].mean() for a in (x, y))
print(f"mean logprob {first:.4f}, sampled again {second:.4f}; ruled out: luck")

# %% [markdown]
# **Step 3: score with both**, and with the engine twice: as it reported while decoding, and in one
# pass over the finished ids. (K3 of tokens that a third stack sampled estimates no KL. For a search
# mean |d| will do.)

# %% tags=["anchor:two-logprobs"]
@torch.no_grad()
def again(stack, how=score):
    return how(policy, x.prompt, x.response, stack)


def off(stack):
    return compare(again(stack).logp, again(FP32).logp, x.mask).mean_abs


itself = compare(x.logp_rollout, again(engine).logp, x.mask).mean_abs
print(f"mean |d|: engine with itself {itself:.0e}, with the trainer "
      f"{today.mean_abs:.3f}\nruled out: decoding, its caches, columns")

# %% [markdown]
# **Step 4: compare what went in, then what came out**, in the order of the pass: ids, masks,
# positions, logits, raw logprobs (before the sampler's processors), reported ones (after them). The
# first three are integers: exact, no threshold. Where ids differ, all that follows is consequence;
# so we note it, give both sides the engine's ids, and go on.

# %% tags=["anchor:compare"]
print(f"ids: prompts of {x.prompt.shape[1]} and {theirs.shape[1]}\nmask: "
      f"{(x.mask ^ counted).sum()} of {x.mask.sum()} tokens count on one side\n"
      f"positions equal: {engine.positions == FP32.positions}\n"
      "mean |difference| from the trainer's logits and logprobs:")
for s, day in (engine, "today"), (AGREED, "on record"):
    z = (again(s, response_logits) - again(FP32, response_logits))[x.mask].abs()
    raw, floor = (off(changed(s, {"sampler.logprobs": way}))
                  for way in ("raw", "processed"))
    print(f"{day}: logits {z.mean():.4f}, raw {raw:.4f}, reported {floor:.4f}")
fields, single = diff(engine, FP32), ["yes, one of them", "no, none of them"]
predict("12.which", "Which field does most of it?", [*fields])
predict("12.single", "Does one, put back alone, leave < 2 floors?", single)

# %% [markdown]
# Two things are found, and *no logprob has told of the second*: what only one side counts has no
# delta. The last lines say where to search. What is far above the record at the **logits** comes
# from inside the network; what is added between **raw** and **reported** is the sampler's.
#
# **Step 5: switch off in turn**: sampling processors, quantisation, attention kernel, parallel
# split. First as everybody does it, each alone:

# %% tags=["anchor:switch-off"]
def aligned(stack, paths):
    return changed(stack, {path: fields[path][1] for path in paths})


print(f"as it is {off(engine):.4f}, floor {floor:.4f}; put back alone:")
alone = {path: off(aligned(engine, [path])) for path in fields}
print(*(f"  {path:28}{size:.4f}" for path, size in alone.items()), sep="\n")
smallest = min(alone.values()) / floor
reveal("12.single", single[int(smallest > 2)])

# %% [markdown]
# With two faults, whichever is put back, the other stays, and "so it was not that one" is a wrong
# conclusion from every line. Halve instead. Put back one half of the fields, then the other; go on
# in the half that **takes more away**; what is found stays repaired, and the search starts again.

# %%
def bisect(stack):
    paths = list(diff(stack, FP32))
    while len(paths) > 1:
        halves = paths[: len(paths) // 2], paths[len(paths) // 2:]
        sizes = [off(aligned(stack, half)) for half in halves]
        paths = halves[sizes[1] < sizes[0]]
        print(f"  {sizes[0]:.4f} or {sizes[1]:.4f}: in", *paths)
    print(f"{paths[0]} put back: {off(aligned(stack, paths)):.4f}")
    return paths


found = bisect(engine)
reveal("12.which", found[0])
after = ["train on", "search again, same tokens", "compare rewards"]
predict("12.next", "And now?", after)

# %%
while (rest := off(aligned(engine, found)) / floor) > 1.5:
    found = found + bisect(aligned(engine, found))
reveal("12.next", after[int(len(found) > 1)])
print("found:", *found, "| injected:", *injected)
claim("|d| after the best single repair, in floors (control: all found)",
      smallest, at_least=2, control=rest)

# %% [markdown]
# It ends near where it was the day before, not at zero: what is left is *agreed*. Had no floor
# been on record, FP32 and eager kernels on both sides would have set one.
#
# **Step 6: template, EOS, padding, stop words.** The ids of step 4 need a cause, and so does the
# mask. Make the ids of every variant that you can think of (lesson 05 renders these), compare
# integers, and ask *which* ids the mask leaves out:

# %% tags=["anchor:template"]
for name, ids in TEMPLATES.items():
    print(f"{name:16}{'as the trainer' * torch.equal(ids, theirs) or 'other'}")
lost = x.response[x.mask & ~counted]
print("left out of the mask:", tok.decode(lost.unique()), "in", len(lost))

# %% [markdown]
# **Step 7: dense against a mixture.** A router can turn a rounding error into another
# expert: rarely, and then the delta is large. The agreed engine, on the dense policy and
# on the course's mixture; then the trainer follows its routes:

# %% tags=["anchor:dense-moe"]
routed = changed(AGREED, {"numerics.router": "bf16"})
r3, moe, router = changed(FP32, {"router.replay": "rollout"}), load("moe"), {}
for name, *sides, who in (("dense", AGREED, FP32, policy), (
        "mixture", routed, FP32, moe), ("mixture, R3", routed, r3, moe)):
    m = router[name] = pair(*sides, who=who)[1]
    print(f"{name:12}mean |d| {m.mean_abs:.4f}, largest {m.max_abs:.2f}, "
          f"K3 {m.k3:.1e}")

# %% [markdown]
# The mean hides it; the *largest* shows it, in batches that caught a flip near a tie (other seeds
# catch fewer). What replay takes away was the router's. Our policy is dense: routers are ruled out.
#
# **Step 8: record the distribution, set an alarm**, or the case comes back. The bound is the run's
# own, twice the largest of eight healthy batches of 64. Beside it stands what everybody looks at
# first, and how far chance moves it:

# %% tags=["anchor:alarm"]
bound = 2 * max(pair(AGREED, ask=task.prompts(64, noise(k)))[1].mean_abs
                for k in range(40, 48))
usual, K3 = pass_rate(policy, task, AGREED, noise(3), 2048), {}
print(f"bound {bound:.4f}; reward of 64 answers {usual:.2f} ± "
      f"{1.64 * (usual * (1 - usual) / 64) ** 0.5:.2f}")
faults = SUSPECTS | {"positions.offset": 1}
for name in [*faults, *TEMPLATES]:
    stack = changed(AGREED, {k: v for k, v in faults.items() if k == name})
    y, m = pair(stack, read=TEMPLATES.get(name, asked)[:64], ask=asked[:64])
    K3[name] = f"K3 {m.k3:.0e}"
    r = task.reward(y.prompt, y.response, y.mask).mean() - usual
    print(f"{name:28}{'rings' if m.mean_abs > bound else 'silent':8}"
          f"|d| {m.mean_abs:7.4f}   reward {r:+.2f}")

# %% [markdown] tags=["anchor:not-reward"]
# **Start from tokens, never from the reward alone.** A trainer's template cannot move the reward:
# the engine answered the right prompt, and the four last rewards are one number. A changed engine
# moves it, by how much compared with chance you see above. And no row is the mask's: it has no
# delta and no reward, it needs a *test*: in CI, one request with fixed ids, mask and shapes.
#
# The other way round, **the reward rises and users complain**: one checkpoint and one set of prompts
# through the rollouts' stack and through the one that serves. If their pass rates part, as those of
# layer 4 did for two stacks, go through these eight steps between *these two*; if they don't, the
# users' prompts are others than yours.

# %% [markdown] tags=["anchor:design-question"]
# ## Design it: a rollout and a trainer that agree
#
# *"Design weight synchronisation and logprobs for RL with a separate inference engine. It must not
# drift apart unnoticed."* Ten minutes aloud, then the rubric, two points each:
#
# | | a good design says | shown in |
# |---|---|---|
# | 1 | **Weights**: versioned, a digest of what is loaded, caches flushed, each token with the version that sampled it | [10](10_monitoring.ipynb) |
# | 2 | **Tokens**: ids in, ids out; one template; masks made once, by whoever sampled | [05](05_templates.ipynb) |
# | 3 | **Logprobs** of the distribution that was sampled from, after all processors, and the kept set where something is cut | [06](06_decoding.ipynb) |
# | 4 | **Formats** of both sides in a list: head, cache and router by name | [03](03_number_formats.ipynb) |
# | 5 | **Kernels**: fixed shapes where exactness is worth its price, else a floor on record | [04](04_kernels.ipynb) |
# | 6 | **Routes** returned and replayed, if it is a mixture | [07](07_routers.ipynb) |
# | 7 | **Staleness** bounded, and told apart from mismatch: three policies | [10](10_monitoring.ipynb) |
# | 8 | **Loss**: old logprobs recomputed; a weight for the rest, with level, bound and kept share in the log | [09](09_corrections.ipynb) |
# | 9 | **Monitors and CI**: delta by token and by answer, a trend alarm, a test on fixed ids and shapes, evaluation on the stack that serves | [10](10_monitoring.ipynb) |
# | 10 | **Fallback**: who stops what: drop the batch, go on with recomputed logprobs, back to the last good version | [09](09_corrections.ipynb) |
#
# Contested is **what to repair first, and whether exact kernels are worth their price**. Five things
# are wrong at once: weights one update old, `<bos>` twice, a temperature of 1.1, INT4 weights
# with BF16 activations, other kernels. There are 120 orders in which to repair them.

# %%
parts = ["weights", "template", "sampler", "formats", "kernels"]
predict("12.first", "Repaired alone, which takes most of K3 away?", parts)

# %% tags=["anchor:design"]
WRONG = {"kernels": OTHER | {"kernels.shapes": "free"},
         "sampler": {"sampler.temperature": 1.1}, "formats": {
             "numerics.weights": "int4", "numerics.activations": "bf16"}}


def remaining(done):
    # K3 with the parts in `done` repaired and all others wrong.
    stack, newest = EXACT, trainer.model
    for part in sorted(WRONG.keys() - done):
        stack = changed(stack, WRONG[part])
    read = TEMPLATES["right" if "template" in done else "<bos> twice"][:128]
    who = newest if "weights" in done else policy
    return pair(stack, EXACT, read, who, newest, asked[:128])[1].k3


ways = [[frozenset(order[:n]) for n in range(6)]
        for order in permutations(parts)]
k3 = {done: remaining(done) for done in set().union(*ways)}
curves = torch.tensor([[max(k3[done], 1e-16) for done in w] for w in ways])
fig, ax = plt.subplots(figsize=(style.WIDTH, 3.4))
ax.semilogy(curves.T, color=style.QUIET, lw=0.5)
ax.semilogy(curves[0], "o-", color=style.GOOD, label=", ".join(parts))
ax.semilogy(curves[-1], "o-", color=style.ROLLOUT, label="the other way round")
style.label(ax, "K3 left, in 120 orders (0 at 1e-16)", "repairs made", "nats")
fig.legend(loc="outside lower center", ncols=2)
plt.show()
wrong, *first, exact = (k3[frozenset(x)] for x in ([], *zip(parts), parts))
last = [k3[frozenset(parts) - {part}] for part in parts]
print(f"all wrong: K3 {wrong:.1e}\n{'':10}repaired alone   wrong alone")
for row in zip(parts, first, last):
    print("{:10}{:14.1e}{:14.1e}".format(*row))
reveal("12.first", parts[first.index(min(first))])
claim("share of K3 that exact kernels leave, repaired first (control: best)",
      first[-1] / wrong, between=(0.8, 1.25), control=min(first) / wrong)
claim("K3 that exact kernels leave, repaired last (control: ordinary ones)",
      exact, equal=0, control=last[-1])

# %% [markdown]
# What is left is about the largest fault that is left, in whatever order, and a curve falls off its
# cliff only when the last large one goes. So K3 justifies no order. "Inputs first" is right for
# another reason: after wrong ids nothing else measures what you asked, and a wrong template is a
# bug, while INT4 may be a choice. To repair something need not even lower K3: compare *template,
# repaired alone* with *all wrong*. Two faults can hide each other.
#
# Exact kernels first change next to nothing, and you would conclude that they are not worth it.
# Exact kernels *last* take a remainder that nobody would mind to 0. What is that worth? Not a
# better gradient. An **alarm without a threshold**: from then on every nonzero delta is a bug, one
# update that came late included. That is the argument to make, beside the price (lessons 04, 09).

# %% [markdown] tags=["anchor:case"]
# ## A case to debug
#
# 256 answers were scored by both sides; d is the trainer's logprob minus the sampler's. Read signs
# and places before sizes.

# %%
case = cases.case(random.Random(seed(70)))
print(case.traces)
predict("12.case", "What is wrong?",
        [str(cases.FAULTS[name].label) for name in case.options])

# %%
fault = cases.FAULTS[case.options[case.right]]
reveal("12.case", str(fault.label))
print(fault.why)

# %% [markdown] tags=["anchor:drill"]
# ## The cards
#
# All 70 questions, in English and in Chinese, as choices and as open ones with a rubric, and drills
# with fresh numbers. Five of the last group; `drill()` takes what is due from all.

# %%
drill(groups=["VIII"], count=5)

# %% [markdown]
# On the terminal: `tinyrl drill` for the same cards and the same record, `tinyrl mock --minutes 45`
# for an interview with a report of what to go over again, `tinyrl export anki` for a deck.
#
# **How to speak.** Definition first, in one sentence; then ask which layer they want. Say what you
# *measured*. Say "I don't know, I would look at" and then a number. Sentences that cost points:
# "It is floating point, as always." "Importance sampling solves it." "GSPO does not need aligned
# logprobs." "Weights are equal, so it can't be." The cards say of each why it is wrong.

# %% [markdown] tags=["anchor:one-page"]
# ## All of it on one page
#
# **The inequality.** Training's objective, computation and data, against those of use: where one
# differs, what was optimised is not what runs.
#
# **The semantics.** A rollout's logprob has to *mean* what the trainer's means: the same token,
# after the same ids, at the same positions, under the same sampler, by the same version of the
# weights. Equal numbers are the consequence; a small delta is no proof (top-p with raw logprobs,
# lesson 06).
#
# Nine sources, three effects, seven remedies, each with a number of this notebook. (Sources: K3 of
# the agreed BF16 engine with this fault alone, the router's on the mixture; effects: INT4 weights.)

# %% tags=["anchor:page"]
HOMES = ("start_here two_policies exposure_bias number_formats kernels "
         "templates decoding routers objectives corrections monitoring").split()
mixed, same = (f"K3 {m.k3:.0e}" for m in [*router.values()][1:])
token, whole = b.d[b.mask].std(), (b.d.sum(1) / b.mask.sum(1)).std()
table = "| | measured here | lesson |\n|---|---|---|\n"
for what, number, n in (
        ("**source**: number format", K3["right"], 3), ("mask", "no delta", 5),
        ("kernel, in FP32", f"K3 {last[-1]:.0e}", 4), ("router", mixed, 7),
        ("template", K3["<bos> twice"], 5), ("KV cache", K3["numerics.kv"], 4),
        ("quantisation", K3["numerics.weights"], 3),
        ("sampling", K3["sampler.temperature"], 6),
        ("position ids", K3["positions.offset"], 5),
        ("**effect**: wrong ratio", f"up to {seen.ratio_max:.1f}, not 1", 1),
        ("wrong KL", f"K1 {seen.k1:.3f}, not 0", 10),
        ("biased update", f"cosine {ppo.cosine:.2f}, not 1", 8),
        ("**remedy**: align", f"K3 {wrong:.0e} to {last[-1]:.0e}", 9),
        ("recompute", f"ratio 1, K3 still {seen.k3:.0e}", 9),
        ("true on-policy", f"K3 {exact:g}", 9),
        ("importance sampling", f"ESS {ess(product.log()):.0%}: a price", 9),
        ("sequence ratio", f"spread {whole:.3f} for {token:.2f}", 8),
        ("stable router and precision", f"{mixed} to {same[3:]} by R3", 7),
        ("evaluate what serves", f"{served:.2f} where {own:.2f} passed", 0)):
    table += f"| {what} | {number} | [{n:02}]({n:02}_{HOMES[n]}.ipynb) |\n"
Markdown(table)

# %% [markdown]
# ## Check yourself
#
# Answer aloud, then open.
#
# <details><summary>Ratio exactly 1 on every token of the first minibatch: are rollout and trainer
# aligned?</summary>
#
# It says that old logprobs were recomputed. K3 between rollout and trainer is what it was.
# </details>
#
# <details><summary>K3 is 0.03 with either of two engines. Is the harm the same?</summary>
#
# No. Sign and place decide: below 1 with a negative advantage PPO stops the token, above 1 it pushes
# without a bound.
# </details>
#
# <details><summary>You put back each difference alone, and delta never falls to the floor. What
# follows?</summary>
#
# That there are at least two. Bisect, keep what is repaired, search again on the same tokens.
# </details>
#
# <details><summary>Which fault of this notebook moves neither a delta nor the reward?</summary>
#
# The mask without the end token. Integers need a test, not an alarm.
# </details>
#
# <details><summary>Why buy exact kernels, if BF16's noise does no visible harm?</summary>
#
# For the alarm: with a floor of exactly 0 each nonzero delta is a bug. Bought before the rest is
# aligned, they change nothing that you could see.
# </details>
#
# <details><summary>The reward rises, users complain. Your first measurement?</summary>
#
# The same weights and prompts through the rollouts' stack and through the one that serves; then the
# served ids scored by the trainer. The logged reward is that of the policy that sampled.
# </details>
#
# ## Where to read on
#
# - Each card names its lesson; [the glossary](../docs/glossary.md) has the words in both languages,
#   [the vocabulary](../docs/vocabulary.md) the two readings of TIS and MIS
# - [The atlas](atlas.ipynb): every field alone, with its numbers and its fingerprint
# - Published thresholds, and what each is blind to: lesson 10
# - Two engines of one model, what the maintainers look at: vllm#18352; an engine that kept serving
#   caches of old weights: NeMo-RL#4018
#
# ## 中文小结
#
# 1. 回答按四层走：定义、来源、影响、对策；事实都对而顺序乱了，或漏掉“影响”，同样失分。
# 2. 定义落在一个 token 的两个概率上；来源用 diff 列出；影响要有数字；对策要说清各自留下什么。
# 3. 重算旧 logprob 后比值从 1 开始，K3 原封不动；加权付出样本量；只有对齐消除不一致。
# 4. K3 差不多大的两个故障，危害可以不同：采样温度 1.2 被 PPO 截掉，0.8 一个也不截，却把个别 token 推得过猛。
# 5. 五种算法都不会让两个 logprob 相等；表里的数来自第一次更新，不能据此排名。
# 6. 排错八步：固定权重，固定 id，两侧打分，依次比输入与输出，逐项关闭，查模板与结束符，对照 MoE，记录分布并报警。
# 7. 两个故障并存时，逐个单独恢复都回不到底噪；要二分，修好的保持修好，在同一批 token 上再查一轮。
# 8. 漏掉结束符的 mask 不动 logprob，也不动奖励：整数要靠测试。训练端的模板也不动奖励，所以先看 token。
# 9. 剩下的 K3 大致由剩下的最大故障决定，修复次序不能靠 K3 排；先修输入，因为那是 bug，而 INT4 可能是取舍。
# 10. 逐位一致的 kernel 先做看不出效果，最后做把底噪变成 0：此后任何非零的 delta 都是 bug，报警不再需要阈值。
