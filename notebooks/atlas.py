# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The atlas
#
# > **You see a K3 and a pattern. Which field of the stack does that?**
#
# One row for each thing that a stack can do in another way: changed alone, on the same
# checkpoint, on the same responses. Nothing here is stored; all of it is computed when you
# run the cells, on three seeds. Five minutes to read, well under a minute to compute.
#
# How a row is made: 128 responses are sampled by the base stack, FP32 on ordinary kernels.
# Two sides that differ in one field score them, as sampler and trainer would, and `delta`
# is what lies between. What is special about a row stands in its brackets:
#
# - What a field needs to act at all is set on *both* sides (and in the sampler).
# - Where the change is itself the remedy, the row shows the fault that it removes:
#   `positions.of` (an offset of all tokens is none), and the two replays.
# - Rows of the router are of the mixture of experts; routing replay follows the routes of a
#   BF16 rollout, mask replay the kept tokens of a top-p rollout.
# - Chunked prefill acts on rollouts only, so there the changed stack samples, and so it
#   does where a sampler cuts.
# - `chat` and `collator` are the trainer's: it makes ids of the same messages, and lays
#   them out in one tensor. Where lengths have to differ, the questions are short and half
#   of them stand behind an earlier question. (The checkpoint has seen neither: sizes there
#   are those of a policy that is unsure.)
# - The last two rows are of the loss's view, and compare the old logprobs that it takes,
#   for a rollout on INT4 weights.

# %%
from copy import deepcopy

import matplotlib.pyplot as plt
import torch
from tqdm.auto import tqdm

from tinyrl.advantages import group_advantages
from tinyrl.checkpoints import load
from tinyrl.course import claim, style
from tinyrl.course.claims import seed
from tinyrl.course.lessons.atlas import AGE, ENTRIES, survey
from tinyrl.course.panels.atlas_table import AtlasTable, numbers
from tinyrl.course.predictions import predict, reveal
from tinyrl.objectives import LossView, grpo
from tinyrl.scoring import score
from tinyrl.stack import PRESETS, Stack
from tinyrl.tasks import CumSum
from tinyrl.trainer import generate, rl

style.use()
torch.set_num_threads(1)  # small models: a second thread would only wait
model, moe, task = load("sft"), load("moe"), CumSum()


def noise(offset):
    return torch.Generator().manual_seed(seed(offset))


# %%
fields = ["weights eight updates old", "FP8 KV cache", "positions off by one"]
predict("atlas.worst", "Which of these has the largest K3?", fields)

# %% [markdown]
# "Weights" needs versions: eight steps of RL first, each kept.

# %%
newest, versions = deepcopy(model), [deepcopy(model)]
for _ in rl(newest, task, generator=noise(1), steps=AGE):
    versions.append(deepcopy(newest))

seeds = [seed(offset) for offset in range(2, 5)]
rows = survey(versions, moe, task, seeds)
atlas = AtlasTable(tqdm(rows, total=len(ENTRIES), desc="fields"))
atlas

# %% [markdown]
# **How to read it.** Names with `#` are links to public issues about the field. K3
# estimates the KL of a token, in nats. *Growth* is the exponent with which the spread of
# the summed delta grows along a response: about 0.5 is a walk at random; it is a noisy
# number on thirteen tokens. The fingerprint shows, left, how many tokens have which
# delta, in decades, exactly 0 in the middle; right, mean |delta| from the first token of
# the response to the last, each picture on a scale of its own.
#
# Three things to see. Fields of *numerics* and *kernels* leave both signs and keep the
# top-1 token. A change of *meaning* (another template, other positions) is larger by
# orders of magnitude. But old weights, a doubled `<bos>` and a cut distribution come much
# nearer to a coarse format, as the factors printed next say, and top-1 does not see them
# either. (The formats of these rows are BF16, and FP8 for the cache. INT4 weights reach
# the size of a temperature: lesson 01.) And some rows are exactly or nearly zero: a field
# that can't hurt here can hurt elsewhere, where its condition is met (position ids by
# column: with learned positions, lesson 05).

# %%
by_path = {row[0].entry.path: numbers(row) for row in atlas}
named = dict(zip(fields, ["weights", "numerics.kv", "positions.offset"]))
reveal("atlas.worst", max(fields, key=lambda f: by_path[named[f]]["k3"]))

arithmetic = [p for p in by_path if p.startswith(("numerics.", "kernels."))]
loudest = max(arithmetic, key=lambda p: by_path[p]["k3_highest"])
top = by_path[loudest]["k3_highest"]
print(f"largest K3 of formats and kernels, any seed: {loudest}, {top:.0e}")
meaning = ["chat.generation_prompt", "positions.offset", "sampler.temperature",
           "weights", "chat.bos", "sampler.top_p"]
for path in meaning:
    low = by_path[path]["k3_lowest"] / top
    print(f"  {path:24} at least {low:8.1f} times that")

order = sorted(by_path, key=lambda path: by_path[path]["k3"])
groups = {"kernels": style.TRAIN, "numerics": style.DELTA}
fig, axes = plt.subplots(figsize=(8.4, 6.0))
for y, path in enumerate(order):
    n, colour = by_path[path], groups.get(path.split(".")[0], style.ROLLOUT)
    ends = [max(n[k], 1e-15) for k in ("k3_lowest", "k3_highest")]
    axes.plot(ends, [y, y], color=colour, lw=3)
    axes.plot(max(n["k3"], 1e-15), y, "o", color=colour)
axes.set_yticks(range(len(order)), order)
axes.set_xscale("log")
style.label(axes, "K3 by field, three seeds (0 is drawn at 1e-15)", "K3, nats")
plt.show()

# %% [markdown]
# Blue: kernels; violet: formats; orange: everything else. In FP32 another order of addition
# moves last bits only; the two kernels above it are more than an order: an unfused norm
# rounds more often, another eps is another formula. The same changes weigh more once the
# base is BF16: that is what lesson 04 measures.

# %%
formats = ["weights", "activations", "kv", "head", "logits", "rope", "boundary"]
worst = max(by_path[f"numerics.{name}"]["k3_highest"] for name in formats)
claim(
    "largest K3 of these formats, over the smallest of a shift by one",
    worst / by_path["positions.offset"]["k3_lowest"],
    at_most=0.001,
    control=by_path["weights"]["k3"] / by_path["positions.offset"]["k3"],
)
kernels = ["attention", "shapes", "logsumexp", "tensor_parallel", "prefill"]
claim(
    "largest |delta| of another order of addition in FP32",
    max(by_path[f"kernels.{name}"]["max"] for name in kernels),
    at_most=1e-4,
    control=by_path["kernels.norm"]["max"],
)

# %% [markdown]
# ## The fourth part: what the loss sees
#
# A `LossView` changes no logprob. It decides which old logprobs stand in the ratio and how
# tokens are averaged; and a *mask* decides which tokens count. So these rows are about the
# gradient: its cosine with the right one, and its length over that one's. The rollout runs
# on INT4 weights.

# %%
def loss_views(k):
    # By view: cosine with the right gradient, length over its, share clipped.
    prompts = task.prompts(24, noise(k)).repeat_interleave(8, 0)
    int4 = PRESETS["int4_weights"]
    batch = generate(model, task, prompts, int4, noise(k + 1))
    reward = task.reward(batch.prompt, batch.response, batch.mask)
    A, P = group_advantages(reward, 8), batch.prompt.shape[1]
    ids = torch.cat([batch.prompt, batch.response], 1)
    every = torch.ones_like(ids[:, 1:], dtype=torch.bool)
    end = batch.response == task.tokenizer.eos_id

    def gradient(view=LossView(), mask=batch.mask, start=P):
        # Tokens that count are those of mask, the first at column start.
        model.zero_grad()
        logp = score(model, ids[:, :start], ids[:, start:], Stack()).logp
        now = logp.detach()
        old = now if view.anchor == "recompute" else batch.logp_rollout
        grpo(logp, old, A, mask, aggregation=view.aggregation).backward()
        outside = ((now - old).exp()[mask] - 1).abs() > 0.2
        g = torch.cat([p.grad.flatten() for p in model.parameters()])
        return g, outside.double().mean().item()

    plain, _ = gradient()
    for name, how in {
        "as it is": {},
        "anchor: rollout": {"view": LossView(anchor="rollout")},
        "aggregation: sequence_mean": {
            "view": LossView(aggregation="sequence_mean")},
        "mask: prompt counts": {
            "start": 1, "mask": torch.cat([every[:, 1:P], batch.mask], 1)},
        "mask: padding counts": {"mask": every[:, P - 1:]},
        "mask: the end does not": {"mask": batch.mask & ~end},
    }.items():
        g, outside = gradient(**how)
        cosine = torch.cosine_similarity(g, plain, 0).item()
        yield name, (cosine, (g.norm() / plain.norm()).item(), outside)


three = [dict(loss_views(k)) for k in (6, 8, 10)]
print(f"{'three seeds, one a column':28}{'cosine':>18}{'length':>18}"
      f"{'outside the clip':>21}")
for name in three[0]:
    columns = zip(*(seen[name] for seen in three))
    kinds = zip(columns, ("6.2f", "6.2f", "7.1%"))
    told = ("".join(f"{x:{how}}" for x in column) for column, how in kinds)
    print(f"{name:28}" + "".join(told))

# %% [markdown]
# **Anchor** in real systems: verl's and OpenRLHF's bypass mode, slime's
# `--use-rollout-logprobs`; RLinf#1534 shows old and new apart at step 0, with a learning
# rate of 0. Remedy: recompute, or a clip that is not centred on another policy. It is the
# row to remember: it ends the INT4 run of lesson 01.
# **Aggregation**: GRPO's mean over responses against DAPO's over tokens. Responses of
# this task are nearly all of one length, so both are nearly one here; on responses of
# unlike length they are not. Remedy: the same on both sides of a comparison.
#
# **Masks** ([trl#6369](https://github.com/huggingface/trl/issues/6369),
# [trl#7039](https://github.com/huggingface/trl/issues/7039)). A prompt that counts cancels
# in the group and only shortens the step, as long as nothing is clipped and no KL term is
# there; without groups nothing cancels. Padding turns the gradient as soon as an answer
# ends early; few do here, and in some batches none does. That the end does not count hardly
# shows in one gradient, and makes a policy that unlearns to stop: lesson 05 trains one.
# Remedy: count by length, never by id.
#
# What no row of logprobs can hold is a response whose *own* ids came back changed (text
# and back): there is no pair of logprobs to compare. Lesson 05 finds it by comparing ids.
#
# ## 中文小结
#
# 1. 图鉴逐项只改一个字段，同一检查点、同一批回答，运行时现算，三个种子。
# 2. 数值格式与 kernel 的次序留下正负都有的小误差，首选 token 基本不变。
# 3. 模板或位置出错改变的是分布本身，K3 大出几个数量级；旧权重、重复的 <bos>、截断采样则与粗格式相差不远。
# 4. FP32 下换一种求和次序只触及最后几位；以 BF16 为底时影响大得多。
# 5. 有的字段要别的条件才起作用：先满足条件，再看它的影响。
# 6. LossView 不改变任何 logprob，只改变梯度：把 rollout 的 logprob 当 old 会移动裁剪中心。
# 7. 增长指数约 0.5 是随机游走；只有十三个 token 时这个数本身很吵。
# 8. 指纹图左边是 delta 的分布（对数刻度），右边是沿回答位置的平均大小。
# 9. top-1 一致率只在错得很大时才下降，单看它会漏掉多数不一致。
# 10. 对照每行下方的“真实系统”，去自己的系统里找同一个开关。
