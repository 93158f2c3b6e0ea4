# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Kernels, caches, parallel splits
#
# > **Two engines hold the same weights, equal to the bit, in the same format. Where can
# > their logprobs still part, and which of these places matter?**
#
# You will change every numeric field of an engine, one at a time, and see that they fall
# into three classes. Then you look into each: attention in four orders, norms that round
# once or five times, a cache that is rounded when written, prompts read in pieces, a model
# shared by two processes. At the end three properties that are often taken for one, and
# the price of having all three. 50 minutes to read, under a minute to compute.

# %%
from itertools import product
from timeit import repeat

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F

from tinyrl.attention import attend
from tinyrl.checkpoints import load
from tinyrl.course import panel, style
from tinyrl.course.claims import claim, seed
from tinyrl.course.predictions import predict, reveal
from tinyrl.formats import quantise
from tinyrl.kernels import Kernels, Numerics, Ops
from tinyrl.metrics import by_position, compare, token_delta
from tinyrl.model import Cache
from tinyrl.parallel import parallel_logits
from tinyrl.scoring import score
from tinyrl.stack import PRESETS, Stack, leaves, replace_at
from tinyrl.tasks import CumSum
from tinyrl.trainer import generate

torch.set_num_threads(1)
torch.set_grad_enabled(False)  # nothing is trained here
style.use()
model, task = load("sft"), CumSum()


def noise(offset):
    return torch.Generator().manual_seed(seed(offset))


# %% [markdown]
# ## One field at a time
#
# Real addition does not care about order; floating-point addition does:

# %%
a, b, c = torch.tensor([1.0, 1e8, -1e8])
print(f"(a + b) + c = {(a + b) + c:.0f},  a + (b + c) = {a + (b + c):.0f}")

# %% [markdown]
# A **kernel** is one choice of order, and of the places where a result is rounded. A
# `Stack` lists both: `numerics` says what a number is at each place, `kernels` in which
# order things are done. Before you look at all of it, commit yourself:

# %%
suspects = ["attention online", "norm unfused", "tensor_parallel 2"]
question = "Two BF16 engines differ in one kernel. Which moves logprobs most?"
predict("04.kernel", question, suspects)

# %% [markdown]
# (A few keys at a time; RMSNorm in five steps instead of one; two ranks sharing each
# product.) The rollout has one field changed, the trainer none. Both sides are FP32 first,
# then both BF16. A changed format is BF16. Same prompts, same random numbers, three
# batches.

# %% tags=["anchor:every-field"]
def runs(rollout, trainer, batches=3):
    """Logprobs of rollout and trainer, and the mask, of each batch."""
    for i in range(batches):
        prompts = task.prompts(96, noise(10 + i))
        b = generate(model, task, prompts, rollout, noise(20 + i))
        s = score(model, b.prompt, b.response, trainer)
        yield b.logp_rollout, s.logp, b.mask


fields = [("attention", way) for way in ("naive", "online", "split_kv")]
fields += [("shapes", "fixed"), ("norm", "unfused"), ("norm_eps", 1e-5)]
fields += [("logsumexp", way) for way in ("naive", "chunked")]
fields += [("tensor_parallel", 2), ("prefill", 5)]
formats = [f.path for f in leaves(Numerics()) if f.path != "overflow"]
fields += [(path, "bf16") for path in formats]

def change(base, field, value):
    if field == "partial":  # needs somebody to exchange with
        base = replace_at(base, "kernels.tensor_parallel", 2)
    part = "numerics" if value == "bf16" else "kernels"
    return replace_at(base, f"{part}.{field}", value)


seen = {}
for which in ("fp32", "bf16"):
    base = PRESETS[which]
    seen["(nothing)", which] = [compare(*run) for run in runs(base, base)]
    for field, value in fields:
        row = field if value == "bf16" else f"{field} {value}"
        pair = runs(change(base, field, value), base)
        seen[row, which] = [compare(*run) for run in pair]


def mean(row, which, what="mean_abs"):
    return sum(getattr(m, what) for m in seen[row, which]) / 3


rows = list(dict.fromkeys(row for row, _ in seen))
print(f"{'changed in rollout':20}{'both sides FP32':>27}{'both BF16':>27}")
print(" " * 20 + f"{'mean |d|':>9}{'K3':>9}{'max |d|':>9}" * 2)
for row in rows:
    line = product(("fp32", "bf16"), ("mean_abs", "k3", "max_abs"))
    print(f"{row:20}" + "".join(f"{mean(row, *x):9.0e}" for x in line))

# %%
fig, ax = plt.subplots(figsize=(style.WIDTH, 4.8))
for which, colour in (("fp32", style.TRAIN), ("bf16", style.ROLLOUT)):
    for i in range(3):
        x = [max(seen[row, which][i].mean_abs, 1e-9) for row in rows]
        name = "_" if i else f"both sides {which.upper()}"
        ax.plot(x, rows, "o", color=colour, alpha=0.6, label=name)
ax.set(xscale="log", ylim=(len(rows), -1))
style.label(ax, "One field changed, three batches", "mean |delta|, nats")
fig.legend(loc="outside upper right", ncols=2)
plt.show()
reveal("04.kernel", max(suspects, key=lambda row: mean(row, "bf16")))

# %% [markdown] tags=["anchor:small"]
# Three classes:
#
# - **Order only** (shapes, logsumexp, ranks that exchange FP32, chunks). In FP32 hardly
#   more than the first row, in which nothing was changed (and yet decoding and scoring
#   differ: their shapes do). In BF16 most tokens don't move at all, since the last bit of
#   an FP32 sum is gone when it is rounded. Now and then it tips a rounding the other way,
#   and one token moves by a whole step (the max).
# - **Where it rounds** (attention, norm, head, logits, RoPE, what ranks exchange): the size
#   of a BF16 step, again and again. Attention looks like an order, and in FP32 it is one.
# - **Silent here**: `router` needs a mixture of experts (lesson 07), and a BF16 stack has
#   rounded already most of what a row would round. (`overflow`, the one field left out,
#   needs a number that is too large: lesson 03.)
#
# eps is none of the three: another formula, and however well it is computed, it stays one.
#
# Each is small by itself. They add up along a response, and the ratio exponentiates the sum
# (lesson 01). What is worth hunting is a rounding that only one side does. The claim:
# products shared by two ranks cost a small part of what an unfused norm does.

# %%
pairs = ("tensor_parallel 2", "norm unfused")
over = {w: mean(pairs[0], w) / mean(pairs[1], w) for w in ("fp32", "bf16")}
claim(
    "mean |delta| in BF16, two ranks over unfused norm (control: FP32)",
    over["bf16"], at_most=0.05, control=over["fp32"],
)

# %% [markdown] tags=["anchor:attention"]
# ## Attention, four ways
#
# $\operatorname{softmax}(q K^\top / \sqrt D)\,V$ has a sum over keys in its denominator and
# one in its numerator.
#
# - **naive**: all scores, softmax, product.
# - **online**: a block of keys at a time, with a running maximum; when a larger score turns
#   up, what has been summed is scaled down. This is FlashAttention; its versions differ in
#   block sizes, in which loop is outside, in what the tensor cores are fed.
# - **split-KV**: a softmax for each part of the keys, in parallel, merged by the logsumexp
#   of each. Flash-decoding: one query, many keys. How many parts depends on the load.
# - **SDPA**: torch's own kernel, which picks among several by shape and device.
#
# They also round at other places once the model runs in 16 bits. The formula as written
# ("eager") sends scores and weights through memory; FlashAttention keeps scores, but feeds
# 16-bit weights to the second product; a kernel that keeps all of it in FP32 is what `sdpa`
# stands for here. That is what the BF16 column above shows.
#
# An engine may score a prompt with one and decode with another. Which one is right? Compare
# with float64 as the number of keys grows, in FP32.

# %%
ways = ["naive", "sdpa", "online", "split_kv"]
predict("04.attention", "2,048 keys, FP32: which is nearest to truth?", ways)

# %%
g, errors = noise(30), {way: [] for way in ways}
sizes = (8, 32, 128, 512, 2048)
for keys in sizes:
    q, k, v = (torch.randn(8, 4, n, 32, generator=g) for n in (1, keys, keys))
    visible = torch.ones(1, keys, dtype=torch.bool)
    truth = attend(q.double(), k.double(), v.double(), visible)
    for way in ways:
        off = attend(q, k, v, visible, way) - truth
        errors[way].append((off.abs().mean() / truth.abs().mean()).item())
fig, ax = plt.subplots()
for way, marker in zip(ways, "os^v"):
    ax.loglog(sizes, errors[way], f"{marker}-", label=way)
style.label(ax, "FP32 attention against float64", "keys", "relative error")
ax.legend()
plt.show()
reveal("04.attention", min(ways, key=lambda way: errors[way][-1]))

# %% [markdown]
# All four are right, as far as FP32 goes. None is *the* value that the others approximate.
# A sum in blocks can even be nearer, since no partial sum gets long. So "our engine is the
# accurate one" repairs nothing: what counts is that both sides round alike.
#
# ## Norms, and their eps

# %% tags=["anchor:norm"]
x = torch.randn(512, 32, generator=noise(31))
for scale in (1.0, 1e-1, 1e-2, 1e-3):
    a, b = (F.rms_norm(scale * x, (32,), eps=eps).std() for eps in (1e-6, 1e-5))
    print(f"activations of size {scale:<6g} eps 1e-6 over 1e-5: {a / b:.4f}")

# %% [markdown]
# A **fused** kernel keeps squares, mean and root in registers and rounds its result once.
# Written as separate BF16 operations, each result goes through memory. (Between the two lie
# modules that take the mean in FP32 and round before the gain, as `transformers` does and
# TransformerEngine does not: TransformerEngine#1132.) Same formula, same dtype: "the dtypes
# match" does not see it, and in the table it was the largest of all kernels. A different
# **eps** is invisible while activations are of size 1, and a factor once they are of size
# eps^(1/2): a config value copied wrong acts on some layers only.
#
# ## The last steps: head, logits, temperature, logsumexp

# %% tags=["anchor:logits"]
head = {f: replace_at(Stack(), "numerics.head", f) for f in ("fp32", "bf16")}
for roll in head:
    for train in head:
        (run,) = runs(head[roll], head[train], 1)
        d = compare(*run).mean_abs
        print(f"LM head: rollout {roll}, trainer {train}: mean |delta| {d:.0e}")
fresh = generate(model, task, task.prompts(256, noise(32)), Stack(), noise(33))
pair = fresh.prompt, fresh.response
print("logits rounded to BF16 before the temperature, the same responses:")
for T in (1.0, 0.5, 0.25):
    fused = replace_at(Stack(), "sampler.temperature", T)
    rounded = replace_at(fused, "numerics.logits", "bf16")
    d = score(model, *pair, fused).logp - score(model, *pair, rounded).logp
    unsure = d[fresh.mask & (fresh.logp_rollout < -0.7)].abs().mean()
    print(f"  T = {T:<5g} mean |delta| of tokens below 1/2: {unsure:.1e}")

# %% [markdown]
# A BF16 head on **one** side costs what BF16 costs; on both sides it cancels, up to order.
# The FP32 head that some trainers use helps only if the engine has it, too: SGLang's
# `--enable-fp32-lm-head`, vLLM's `head_dtype` (vllm#48390).
#
# A **fused logits processor** takes logits from the product to the token without leaving
# FP32. An unfused one writes them in BF16, reads them, divides by the temperature. The
# error of a rounded logit is then divided as well: half the temperature, twice the error of
# a token that is not certain. And logprob = logit - logsumexp: three orders of that sum
# were in the table, and they matter little as long as they are FP32.
#
# ## RoPE tables

# %% tags=["anchor:rotary"]
print("mean error of cos(0.75 * position)")
for limit in (10, 100, 1000, 10000):
    angle = 0.75 * torch.arange(limit)
    table = (quantise(angle.cos(), "bf16") - angle.cos()).abs().mean()
    early = (quantise(angle, "bf16").cos() - angle.cos()).abs().mean()
    print(f"up to {limit:5}: rounded cosine {table:.0e}, angle {early:.0e}")

# %% [markdown]
# Rounding the table of cosines costs at most half a BF16 step, wherever the token is.
# Computing the **angle** in BF16 is another matter: its step grows with the position, until
# it is larger than a turn. Models cast as a whole (`model.bfloat16()`) have done this.
#
# ## The KV cache
#
# Keys and values are rounded when they are **written**, and every later token reads what
# was written. The trainer has no cache: it never sees these numbers.

# %%
factors = ["2 times larger", "16 times larger", "256 times larger"]
question = "FP8 (E4M3) has 3 mantissa bits, BF16 7. FP8 cache: |delta| is ..."
predict("04.kv", question, factors)

# %% tags=["anchor:kv-cache"]
kv, (fig, ax) = {}, plt.subplots()
for fmt in ("int4", "fp8_e4m3", "int8", "bf16", "fp16"):
    stack = replace_at(Stack(), "numerics.kv", fmt)
    run = [torch.cat(x) for x in zip(*runs(stack, Stack()))]
    kv[fmt] = compare(*run).mean_abs
    by = by_position(token_delta(*run), run[-1]).mean_abs
    ax.semilogy(by, label=f"{fmt}: mean {kv[fmt]:.0e}")
style.label(ax, "Delta, by cache", "response token", "mean |delta|, nats")
fig.legend(loc="outside right upper")
plt.show()
times = kv["fp8_e4m3"] / kv["bf16"]
claim(
    "mean |delta|, FP8 cache over BF16 cache (control: FP16 cache over BF16)",
    times, between=(8, 32), control=kv["fp16"] / kv["bf16"],
)
reveal("04.kv", factors[0 if times < 6 else 1 if times < 64 else 2])

# %% [markdown]
# Each mantissa bit is a factor of two. INT8 has 8 bits like FP8 and does better: it spends
# them on 127 even steps below the largest entry of each head and token, FP8 on range. A
# vector with one large entry would turn that round. INT4 keeps 15 levels. FP8 is cast as it
# is, as vLLM does without calibrated scales, which costs nothing while entries are inside
# FP8's range. (With FlashAttention 3 it rounds the query as well.) Recomputing old logprobs
# in the trainer repairs none of this: the tokens were drawn by the policy *with* the cache.
#
# ## Prompts in chunks, sequences in batches
#
# A scheduler decides how many prompt tokens to read in one pass (**chunked prefill**) and
# how many sequences to decode together. Both change the number of rows in a product; a
# library picks its inner loop by that number, and with it the order of additions.

# %% tags=["anchor:batch-invariance"]
batch = generate(model, task, task.prompts(64, noise(3)), Stack(), noise(4))
ids = torch.cat([batch.prompt, batch.response], 1)[:, :-1]


def one_pass(ids, ops):
    """The trainer's way: all tokens at once."""
    return model(ids, ops)


def decode(ids, ops, chunk=1):
    """The engine's way: `chunk` tokens at a time, through a cache."""
    cache = Cache(model.config, len(ids))
    passes = (model(x, ops, cache=cache) for x in ids.split(chunk, 1))
    return torch.cat(list(passes), 1)


worst = {}
for name in ("fp32", "true_on_policy"):
    ops = PRESETS[name].ops()
    whole, others = decode(ids, ops), {}
    for n in (1, 2, 3, 5, 16):
        parts = [decode(some, ops) for some in ids.split(n)]
        others[f"{n} sequences at a time"] = torch.cat(parts)
    for n in (3, 8, ids.shape[1]):
        others[f"{n} tokens at a time"] = decode(ids, ops, n)
    print(f"{name}: against 64 sequences, a token at a time")
    for what, logits in others.items():
        off = (logits - whole).abs()
        worst[name] = max(worst.get(name, 0.0), off.max().item())
        share = (off > 0).double().mean()
        print(f"  {what:22} {share:4.0%} changed, at most {off.max():.0e}")

# %% [markdown]
# With ordinary kernels a token's logits depend on how many others are computed beside it
# (not on what these say). Which numbers of rows differ is this processor's affair. The
# repair is one **fixed order of reduction**: the preset `true_on_policy` pads the rows of
# each product to a multiple of 16 and the key axis to one length, so the same inner loop
# runs whatever the batch. (GPU libraries reach it otherwise: one tile size, no split of the
# summed axis, fixed split sizes in attention.)

# %%
claim(
    "largest change of a logit, fixed order (control: ordinary kernels)",
    worst["true_on_policy"], equal=0, control=worst["fp32"],
)

# %% [markdown] tags=["anchor:tensor-parallel"]
# ## Tensor parallel, with two processes
#
# Megatron's split: each rank holds half of the heads and of the MLP, multiplies, and an
# **all-reduce** adds the partial sums. Training on 8 ranks and sampling on 2 means other
# sums. `kernels.tensor_parallel` simulates it in one process. Here are two real ones, which
# meet through `torch.distributed` and gloo, on this machine.

# %%
two, real = Kernels(tensor_parallel=2), {}
plain = Stack().ops()
print("mean |difference| of logits")
for partial in ("fp32", "bf16"):
    numerics = Numerics(partial=partial)
    real[partial] = parallel_logits(model, ids, two, numerics)
    simulated = one_pass(ids, Ops(two, numerics))
    pair = real[partial], one_pass(ids, plain)
    off, split = (F.l1_loss(x, simulated).item() for x in pair)
    print(f"{partial} sums exchanged, two processes and simulation {off:.0e}")
    print(f"{'':21} simulation and no split      {split:.0e}")
wrong = F.l1_loss(real["fp32"], simulated).item()
claim(
    "two processes against simulation, over split against none "
    "(control: the processes exchange FP32)",
    off / split, at_most=0.05, control=wrong / split,
)

# %% [markdown]
# The simulation is the real thing, up to the last bits of a product's order. What matters
# is the format in which partial sums **travel**: FP32 sums cost what an order costs, BF16
# sums as much as BF16 does anywhere. Addition of two is commutative, so two ranks agree in
# any order; from three on the collective's algorithm decides.
#
# ## Pipeline parallel
#
# A cut between layers moves no sum. What is handed over may be cast, and the batch is cut
# into micro-batches. Read 64 sequences token by token, in two stages:

# %% tags=["anchor:pipeline"]
class Wire(Ops):
    """What leaves a stage becomes bytes, and a tensor in the next."""

    def boundary(self, x):
        sent = super().boundary(x).numpy().tobytes()
        return torch.frombuffer(bytearray(sent), dtype=x.dtype).view(x.shape)


for boundary in ("fp32", "bf16"):
    ops = Wire(Kernels(), Numerics(boundary=boundary))
    for micro in (64, 16, 1):
        staged = torch.cat([decode(some, ops) for some in ids.split(micro)])
        off = (staged - decode(ids, plain)).abs().max()
        print(f"{boundary} boundary, micro-batch {micro:2}: off by {off:.0e}")

# %% [markdown]
# Bit-equal until the boundary is cast, or until a micro-batch is small enough for another
# inner loop. The split itself is innocent.
#
# ## Three different things
#
# - **Determinism**: run it twice, get the same bits.
# - **Batch invariance**: alone or in company, the same bits.
# - **Train/inference equality**: the trainer's bits are the rollout's (lesson 09 calls it
#   true on-policy).
#
# An engine has the fixed order and, unlike its trainer, a BF16 cache. What is left of the
# three?

# %%
kept = ["the first", "the first two", "all three"]
predict("04.deterministic", "Fixed order, a BF16 cache on one side:", kept)

# %% tags=["anchor:three-things"]
clock = noise(40)


class Arrival(Ops):
    """Four partial sums, added in the order in which they arrive (drawn)."""

    def row_parallel(self, x, layer):
        pairs = list(zip(x.chunk(4, -1), layer.weight.chunk(4, 1)))
        arriving = torch.randperm(4, generator=clock).tolist()
        return sum(F.linear(*pairs[rank]) for rank in arriving)


fixed = PRESETS["true_on_policy"].ops()
cached = replace_at(PRESETS["true_on_policy"], "numerics.kv", "bf16").ops()
systems = {
    "sums as they arrive": (Arrival(Kernels(), Numerics()), one_pass, plain),
    "ordinary kernels": (plain, one_pass, plain),
    "the trainer replays decoding": (plain, decode, plain),
    "fixed order, BF16 cache": (cached, one_pass, fixed),
    "fixed order on both sides": (fixed, one_pass, fixed),
}
holds = {}
print(f"{'':30}{'twice':>9}{'batch':>9}{'trainer':>9}")
for name, (ops, trainer, its) in systems.items():
    once, again, single = (decode(x, ops) for x in (ids, ids, ids[:1]))
    pairs = (again, once), (single, once[:1]), (trainer(ids, its), once)
    holds[name] = ["yes" if torch.equal(x, y) else "no" for x, y in pairs]
    print(f"{name:30}" + "".join(f"{held:>9}" for held in holds[name]))
held = holds["fixed order, BF16 cache"].count("yes")
reveal("04.deterministic", kept[held - 1])

# %% [markdown]
# On most processors each row has another pattern. **Determinism is the ground floor**:
# without it (first row) there are no bits that the others could equal, and alone it gives
# neither of them. Of these two, neither gives the other. (The order of arrival is drawn
# here. On GPUs atomic additions do it; forward passes rarely have any, so an engine is
# mostly deterministic for one batch, and what varies is the batch.)
#
# A deterministic engine draws other tokens when traffic changes. A batch-invariant engine
# may still disagree with its trainer: with an FP8 cache vLLM's decoding and scoring part
# from token 97 on, in batch-invariant mode, since they tile the keys differently
# (vllm#54035). A trainer that replays decoding, in the same batch, agrees without any
# invariance, at the price of a slow pass. **So equal weights do not mean equal logprobs**:
# formats at a dozen places, order, shapes and splits all have to be equal as well.
#
# ## What the fixed order costs

# %% tags=["anchor:cost"]
naive = Ops(Kernels("naive"), Numerics())
kinds = {"SDPA": plain, "naive": naive, "naive, fixed": fixed}
print(f"{'milliseconds':20}" + "".join(f"{kind:>13}" for kind in kinds))
for work, n in product((decode, one_pass), (1, 64)):
    line = f"{work.__name__:10}{n:3} rows  "
    for ops in kinds.values():
        laps = repeat(lambda: work(ids[:n], ops), number=1, repeat=9)
        line += f"{1e3 * min(laps):13.1f}"
    print(line)

# %% [markdown]
# Measured just now, on your machine, with a model so small that overheads count most. The
# last column over the one before it is the price of the fixed order alone. Published
# costs on GPUs, of different systems and so not to be ranked: about 10 % for a DeepSeek-V4
# recipe (verl#7688), 34 % on average in SGLang's first report (2025), and 26 seconds that
# became 55, then 42 with a better attention kernel, at Thinking Machines.
#
# ## Native kernels of this machine
#
# So far BF16 was **simulated**: inputs rounded, sums in FP32, result rounded. The same with
# torch's native kernels. These lines are about *this* processor and torch version; another
# will print others.

# %% tags=["anchor:native"]
x, w = (quantise(torch.randn(n, 128, generator=g), "bf16") for n in (64, 96))
q, k, v = quantise(torch.randn(3, 4, 2, 64, 32, generator=g), "bf16")
attention = F.scaled_dot_product_attention
print(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}")
print("share of results that are equal to the bit:")
for kernel, args in ((F.linear, (x, w)), (attention, (q, k, v))):
    native = kernel(*(t.bfloat16() for t in args)).float()
    same = (native == quantise(kernel(*args), "bf16")).double().mean()
    print(f"  {same:6.1%} native and simulated BF16, {kernel.__name__}")
for dtype in (torch.float32, torch.bfloat16):
    a, b = x.to(dtype), w.to(dtype)
    same = (F.linear(a[:1], b) == F.linear(a, b)[:1]).double().mean()
    print(f"  {same:6.1%} a row alone and among 64, {dtype}")

# %% [markdown]
# ## Your turn
#
# The panel offers every field. Two to try: an unfused norm with BF16 activations on both
# sides (with FP32 ones it has nothing to round, and changes nothing); then `true_on_policy`
# on both, and one field of one side changed. Which field leaves delta at zero, and why?

# %%
panel(model, task, rollout=PRESETS["fp8_kv"])

# %% [markdown]
# ## For your own stack
#
# - Search first for a rounding that one side does and the other does not: norm, head, logits,
#   cache, all-reduce.
# - Run one prompt alone and in a full batch. If bits differ, the engine is not batch-invariant,
#   and its last digits depend on traffic.
# - Know the **floor** of your two sides: the delta that they have while nothing is wrong.
#
# ## Check yourself
#
# Answer aloud, then open.
#
# <details><summary>Both sides report dtype BF16. Name three places where they may still
# round differently.</summary>
#
# Norm in one step or five, LM head and logits, partial sums between ranks; also the cache,
# the RoPE table, what a pipeline stage hands on.
# </details>
#
# <details><summary>Temperature 0, the same prompt, two answers on two days. The engine is
# deterministic. How?</summary>
#
# Another batch beside it: other shapes, other order of sums, another last bit, and one tie
# that falls the other way. Determinism is not batch invariance.
# </details>
#
# <details><summary>The engine has an FP8 cache, the trainer recomputes old logprobs. What
# is repaired?</summary>
#
# The centre of PPO's clip. The samples still come from the policy with the cache.
# </details>
#
# <details><summary>From 2 to 8 ranks, delta grows tenfold. What do you look at first?
# </summary>
#
# The format of the all-reduce, and whether it adds before or after rounding; order alone
# costs next to nothing in FP32.
# </details>
#
# **Now write it yourself**: [lab 04](../labs/lab04_kernels/lab04_kernels.ipynb), eight
# functions, each checked at once.
#
# ## Where to read on
#
# - Online softmax: arXiv 1805.02867; FlashAttention: 2205.14135, 2307.08691, 2407.08608
# - Tensor parallel: arXiv 1909.08053; pipelines: 1811.06965; chunked prefill: 2308.16369
# - Paged and quantised caches: arXiv 2309.06180, 2402.02750
# - Batch invariance: Thinking Machines Lab, "Defeating Nondeterminism in LLM Inference",
#   2025
#
# ## 中文小结
#
# 1. 权重逐位相同，logprob 仍可能不同：kernel 决定加法的顺序，也决定在哪里舍入。
# 2. 只改加法顺序（形状、切分、分块），FP32 下与什么都不改相差无几；BF16 下多数 token 不变，偶尔有一个跳一整步。
# 3. 只有一侧多做一次舍入（attention 的权重、未融合的 norm、head、logits、RoPE 表）才是量级更大的来源，dtype 相同看不出来。
# 4. naive、SDPA、online softmax、split-KV 都对，离 float64 一样近；要紧的是两侧做法一致。
# 5. eps 在激活很小时才起作用；logits 先舍入再除以温度，温度越低误差放得越大。
# 6. KV cache 在写入时量化，之后每个 token 读到的都是量化值；尾数每少一位，误差约翻一倍。
# 7. 分块 prefill 和 batch 大小改变矩阵的行数，行数改变内部循环；固定归约顺序可以修好，代价可以当场测出来。
# 8. 张量并行的要害是部分和以什么格式传输；两个真实进程与单进程模拟吻合。
# 9. 流水线切分本身逐位相等，边界处转换格式或 micro-batch 变小才会改变结果。
# 10. 确定性、batch 不变性、训练推理一致是三件事：确定性是另外两件的前提，但推不出它们；那两件之间也互不蕴含。
