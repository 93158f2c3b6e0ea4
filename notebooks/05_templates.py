# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Templates, masks, positions
#
# > **Both engines hold the same weights and do the same arithmetic, to the bit. The
# > trainer still gives a response another probability, or learns the wrong thing from the
# > right one. What was it asked?**
#
# A logprob answers a question: *these* tokens, after *those*, at *these* positions, seeing
# *this* much. Then a loss asks a second: which of the numbers count? Here nothing is ever
# wrong with a number; it is the right number for another question. You will ask sixteen
# wrong questions through a real template, tokenizer, collator and loss, and learn to tell
# them apart, mostly before any logprob is computed. 50 minutes to read, under a minute to
# compute.

# %%
import tempfile
from copy import deepcopy
from statistics import mean

import matplotlib.pyplot as plt
import torch
from tqdm.auto import tqdm
from transformers import AutoTokenizer

from tinyrl.advantages import group_advantages
from tinyrl.checkpoints import load
from tinyrl.collate import Collator
from tinyrl.course import panel, style
from tinyrl.course.claims import claim, seed
from tinyrl.course.lessons.conversations import (
    Mixed, digit_pairs, distance, encoded, laid_out, loss_and_grad, rolled_out,
    row_logp, said_twice, says_right, second_end, trainer_logp)
from tinyrl.course.lessons.wrong_inputs import (
    FAULTS, Fault, compare_inputs, cut_rewards, in_loss, look_alike, measure)
from tinyrl.course.predictions import predict, reveal
from tinyrl.metrics import compare
from tinyrl.model import GPT, GPTConfig
from tinyrl.positions import Positions
from tinyrl.stack import Stack
from tinyrl.tasks import CumSum
from tinyrl.tokens import Chat, Tokenizer, first_difference
from tinyrl.trainer import pass_rate, sft

torch.set_num_threads(1)  # the fast setting for a model this small
style.use()
tok = Tokenizer()
END = tok.eos_id


def noise(offset):
    return torch.Generator().manual_seed(seed(offset))


# %% [markdown]
# ## Conversations of different lengths
#
# The task is that of lesson 01, running totals modulo 10, in three kinds of conversation:
# two digits ("short"), three ("plain"), and three after an earlier question and its answer
# ("turn"). Two small models learn it, alike but for one thing: one rotates queries and keys
# by position (**RoPE**), the other adds an embedding of the position to each token
# (**learned**, as GPT-2 does).

# %%
lessons, policies = Mixed(noise(0)), {}
for which in ("rope", "learned"):
    made = policies[which] = GPT(GPTConfig(position=which), noise(1))
    how, rate = dict(generator=noise(2), steps=500, batch=64, lr=6e-3), 0
    while rate < 0.4:  # on some seeds the learned positions need two rounds
        for step, _ in enumerate(tqdm(sft(made, lessons, **how), leave=False)):
            if step == 400 and which == "rope":
                early = deepcopy(made)  # an older policy, for later
        rate = pass_rate(made, CumSum(3), Stack(), noise(3))
    print(f"{which:8} answers {rate:.0%} of three digits rightly")
rope, learned = policies.values()

# %% [markdown]
# Everything below has two sides. The **rollout** answers conversations, each read alone
# (`rolled_out`). The **trainer** gets messages and responses, makes ids of them again
# (`encoded`), lays them out in a tensor (`laid_out`) and scores them (`trainer_logp`, and
# `loss_and_grad` where it trains). With nothing changed the two agree:

# %%
for which, policy in policies.items():
    x = rolled_out(policy, noise(4))
    print("asked", x.said[-1][-1]["content"], ":", tok.decode(x.responses[-1]))
    worst = x.off(trainer_logp(policy, x.prompts, x.responses)).abs().max()
    print(f"{which}: largest |delta| of {len(x.said)} responses {worst:.0e}")

# %% [markdown] tags=["anchor:templates"]
# ## A template is part of the policy
#
# A model never sees messages. A **chat template**, a small Jinja program in the
# tokenizer's folder, writes them as text; the tokenizer cuts the text into ids. The
# trainer has its own copy of both, or thinks it has. Here are edits of one template,
# saved, then loaded and rendered by `transformers`:

# %%
chats = {"right": Chat()} | {n: f.chat for n, f in FAULTS.items() if f.chat}
said = [{"role": role, "content": text} for role, text in (
    ("user", "0 7"), ("assistant", "0 7"), ("user", "7 1"))]
with tempfile.TemporaryDirectory() as folder:
    for name, chat in chats.items():
        Tokenizer(chat).save_pretrained(folder)
        hf = AutoTokenizer.from_pretrained(folder)
        text = hf.apply_chat_template(
            said, tokenize=False, add_generation_prompt=chat.generation_prompt)
        ids = hf(text).input_ids  # the text, through the tokenizer
        assert ids == Tokenizer(chat).chat(said)
        print(f"{name:19}{len(ids)} ids:", tok.decode(ids[:3]), "...",
              tok.decode(ids[5:9]), "...", tok.decode(ids[-2:]))

# %% [markdown] tags=["anchor:special-tokens"]
# How each comes about:
#
# - **`<bos>` twice.** The template writes it, and the tokenizer, called on the finished text,
#   adds one to every text it is given. Cure: `add_special_tokens=False`, or let the template
#   make ids. vllm#9519 lists the ways to get there. (Switch the addition off for all models,
#   and one whose *template* writes no `<bos>` loses its only one: **no `<bos>`**.)
# - **System prompt** on one side. Many templates insert their own where a conversation has
#   none.
# - **Turn not opened.** Without the *generation prompt* the text ends before `<assistant>`.
# - **History rewritten.** Templates that drop earlier reasoning, as Qwen3's does, keep the
#   *last word* of our earlier answer (verl#6854 and prime-rl#1334 meet this in RL).
#   A tool call is parsed, kept apart from the text, and written again: `0 7` read as *a
#   number* is `7`. In verl#3960 the calls were cleared on the way, in slime#2063 their
#   arguments were a string where the template wants a mapping. The policy sampled after one
#   text and is scored after the other.

# %%
more = ["RoPE", "learned", "about alike: within twice"]
predict("05.bos", "The trainer's texts begin with <bos> twice. With which "
        "positions does K3 grow more?", more)

# %% tags=["anchor:two-templates"]
fig, axes = plt.subplots(1, 2, sharey=True, figsize=(style.WIDTH, 3.4))
moved = {}
for ax, (which, policy) in zip(axes, policies.items()):
    print(f"{which:24}mean |delta| of tokens 1 to 4          K3")
    x = rolled_out(policy, noise(5), kinds=["plain", "turn"])
    for name, chat in chats.items():
        logp = trainer_logp(policy, encoded(x.said, chat), x.responses)
        four = [pair for pair in zip(x.logp, logp) if len(pair[0]) == 4]
        old, new = (torch.stack(side) for side in zip(*four))
        by, k3 = (new - old).abs().mean(0), compare(old, new).k3
        moved[which, name] = k3
        print(f"  {name:20}", *(f"{d:8.4f}" for d in by), f"{k3:10.4f}")
        if name != "right":
            ax.semilogy(range(1, 5), by, "o-", ms=4, label=name)
    style.label(ax, f"Template changed: {which}", "response token")
    ax.set_xticks(range(1, 5))
axes[0].set_ylabel("mean |delta|, nats")
fig.legend(*ax.get_legend_handles_labels(), ncols=3, loc="outside lower center")
plt.show()
more_k3 = moved["learned", "<bos> twice"] / moved["rope", "<bos> twice"]
print(f"<bos> twice: K3 of learned positions is {more_k3:.3g} times RoPE's")
reveal("05.bos", more[2 if 0.5 < more_k3 < 2 else int(more_k3 > 1)])

# %% [markdown]
# **The size of a delta does not tell the size of the mistake.** One extra `<bos>` is one
# mistake, and K3 differs between the two models, by the factor printed last. Under learned
# positions the token moves all others to places where they were never seen. Under RoPE all
# distances between question and answer are what they were; there is one token more to look at,
# and how much each answer token looks at it nothing but training decided. So which fault moves
# logprobs most can't be told beforehand: the same recipe with another seed orders them
# differently. A **rewritten history** acts only where something was rewritten, and `0 7` to `7`
# needs a leading zero: a few conversations in a hundred. Averaged over the batch it nearly
# drowns under RoPE; under learned positions those few are still loud.
#
# So do not begin with deltas:

# %% tags=["anchor:ids-first"]
x = rolled_out(rope, noise(6))
print("conversations whose ids differ, and the places where they part")
for name, chat in chats.items():
    pairs = zip(x.prompts, encoded(x.said, chat))
    at = [t for pair in pairs if (t := first_difference(*pair)) is not None]
    print(f"  {name:20}{len(at) / len(x.said):5.0%} ", *sorted(set(at)))

# %% [markdown] tags=["anchor:other-condition"]
# One comparison of integers: exact, without a threshold, and it names the place. A
# probability is conditional on *ids*. After other ones the same response is another event,
# and no arithmetic on logprobs brings the number back.
#
# ## Text is not ids
#
# The surest way to lose ids is to send text: a rollout returns a string, the trainer
# tokenises it. Two things happen. Special tokens are skipped on the way out and written
# by the template on the way in; and a tokenizer maps many lists of ids to one text.

# %% tags=["anchor:retokenise"]
x = rolled_out(rope, noise(7), kinds=["plain"], max_new=3)  # too few: cut off
cut = x.responses[0]
told = [*x.said[0], {"role": "assistant", "content":
                     tok.decode(cut, skip_special_tokens=True)}]
again = tok.chat(told, add_generation_prompt=False)[len(x.prompts[0]):]
print("sampled, cut off:", tok.decode(cut), "; back:", tok.decode(again))
bpe = digit_pairs()  # ids 0 to 9, and 10 for the pair 12
text = bpe.decode([1, 2, 10])
print("BPE, sampled", [1, 2, 10], "text", text, "back", bpe.encode(text).ids)
for length in (4, 16, 64, 256):
    rows = torch.randint(15, (500, length), generator=noise(8)).tolist()
    changed = mean(bpe.encode(bpe.decode(row)).ids != row for row in rows)
    print(f"{length:4} ids drawn uniformly: {changed:4.0%} come back changed")

# %% [markdown]
# A policy prefers the list that its tokenizer likes, so real rates are far below those of
# uniform draws; but they grow with length all the same, and one merged pair sets every later
# token against its neighbour's logprob. The cure is to hand over ids and never text, *token
# in, token out* (verl#6719 tells what is hard about that over several turns).
#
# ## Positions, and who sees whom
#
# Now the ids are right. The trainer puts conversations of different lengths into one
# tensor: padding after them (**right**), in front so that responses start in one column
# (**left**), or several in a row (**packed**). Each token is told a position, and which
# tokens it may see. Two ways to get that wrong: tell it its *column* instead of its place
# among its own *tokens*; let it see *all* that lies before it in the row, padding and
# neighbours, instead of its *own* conversation.

# %%
counts = ["none", "2", "4", "all 6"]
predict("05.layouts", "Left and packed, each with one of the mistakes or with "
        "both: 6 settings. How many change no logprob under RoPE?", counts)

# %% tags=["anchor:left-right"]
settings = [Collator(layout, told, seen)
            for told in ("tokens", "columns") for seen in ("own", "all")
            for layout in ("right", "left", "packed")]
fig, axes = plt.subplots(1, 2, figsize=(style.WIDTH, 2.6))
errors = {}
for ax, (which, policy) in zip(axes, policies.items()):
    x = rolled_out(policy, noise(9))
    for how in settings:
        d = x.off(trainer_logp(policy, x.prompts, x.responses, how))
        errors[which, how] = d.abs().mean().item()
    grid = torch.tensor([errors[which, how] for how in settings]).view(4, 3)
    rows = [f"{h.positions}, {h.visible}" for h in settings[::3]]
    style.table(ax, grid, rows, ("right", "left", "packed"))
    style.label(ax, f"{which}: mean |delta|, nats")
plt.show()
wrong = [h for h in settings if h.layout != "right" and h != Collator(h.layout)]
silent = sum(errors["rope", how] < 1e-5 for how in wrong)
reveal("05.layouts", counts[min(3, silent // 2)])

# %% [markdown] tags=["anchor:position-shift"]
# - **Right**: nothing can go wrong. A causal token never sees what comes after it, and its
#   column *is* its place.
# - **Left**: padding must be hidden, for both models. Positions matter to the learned one
#   alone: RoPE sees differences, and all tokens of a row moved together.
# - **Packed**: the same, with a neighbour in place of padding. A leak (*all*) makes another
#   conversation history; all of a row suffer but its first.
#
# "Left padding breaks positions" is thus true of some models (trl#6800). Who pads on the
# left derives position ids from the attention mask: its running sum, minus 1. Architectures
# that carry a state instead of a mask need more to keep neighbours apart.

# %%
fine = [e for (which, how), e in errors.items() if how.layout == "right" or (
    how.visible == "own" and (which == "rope" or how.positions == "tokens"))]
claim("mean |delta|, worst of the harmless settings (control: best of others)",
      max(fine), at_most=1e-5, control=sorted(errors.values())[len(fine)])

# %% [markdown]
# ### All of it, or the generated part only
#
# A position can also go wrong *inside* a conversation. An engine that counts prompt tokens
# without their padding and generated ones by column puts a gap between the two. This happens
# in the rollout, so now the policy answers under it.

# %% tags=["anchor:gap"]
fig, axes = plt.subplots(1, 2, sharey=True)
for ax, (which, policy) in zip(axes, policies.items()):
    for of, look in (("all", "o-"), ("response", "x--")):
        stacks = [Stack(positions=Positions(k, of)) for k in range(7)]
        rates = [pass_rate(policy, CumSum(3), s, noise(10)) for s in stacks]
        ax.plot(rates, look, color=style.ROLLOUT, label=f"{of} moved")
        print(f"{which:8} {of:9}", *(f"{r:5.2f}" for r in rates))
    style.label(ax, f"{which} positions", "moved by, places", "pass rate")
axes[0].legend()
plt.show()

# %% [markdown]
# Under RoPE, moving everything is *nothing* and moving the answer alone is *ruin*: the model
# looks a fixed distance back. Under learned positions both are ruin. Recomputing old logprobs
# in the trainer hides it: the trainer's positions are right, and the *samples* are bad.

# %% tags=["anchor:panel"]
panel([load("sft")], CumSum(), rollout=Stack(positions=Positions(1)))

# %% [markdown]
# The shipped model of lesson 01, answers moved by one in the rollout. Set *offset moves* to
# "all"; then give both sides the same offset.
#
# ## Which numbers count: the mask
#
# From here on ids, positions and logprobs are right, and every delta is zero. What can
# still go wrong is the **mask**. Groups of eight answers, GRPO's loss, its gradient under
# wrong masks against the right one. First, prompt tokens slip in.

# %%
turns = ["points elsewhere", "same direction, shorter", "same, longer"]
predict("05.prompt", "Prompt tokens count in GRPO's loss (mean over tokens, "
        "first update, no KL term). Its gradient ...", turns)

# %% tags=["anchor:prompt-in-loss"]
def prompt_counts(name, sampler, **how):
    # Groups of a sampler, and RoPE's gradient without prompts and with them.
    x = rolled_out(sampler, noise(11), 8, ["short", "plain"] * 3, max_new=4,
                   repeat=8)
    A = group_advantages(torch.tensor(x.reward), 8)
    right, wrong = (in_loss(rope, x, fault, A, **how)
                    for fault in (Fault(), FAULTS["prompt counts"]))
    share = right.tokens / wrong.tokens
    print(f"{name:15}{wrong.told(right)}; responses {share:.3f} of tokens")
    return x, A, right, share, *wrong.against(right)


prompt_counts("older sampler", early, old=early)
*_, cos_kl, _ = prompt_counts("with a KL term", rope, reference=early)
group, A, right, share, cos, longer = prompt_counts("first update", rope)
reveal("05.prompt", turns[0 if cos < 0.99 else 1 if longer < 1 else 2])

# %% [markdown]
# In the first update the direction is *right*. All answers of a group share their prompt and
# their advantages sum to zero, so the prompt's gradients cancel; only the denominator has
# grown, and the gradient is as much shorter as there are more tokens. As soon as the sampler
# is older than the policy (here by a hundred steps of training), clipping breaks the balance,
# and a KL term, to that older policy, never had one. It is worse here than in a model that was
# pretrained on such text: ours never learned its prompts, so what it makes of them drifts.
# Without groups (SFT, PPO with a critic) nothing cancels from the start: the policy learns to
# write its users' messages.

# %%
claim("cosine, prompt counted, first update (control: with a KL term)",
      cos, at_least=0.999, control=cos_kl)

# %% [markdown]
# Is a shorter gradient a smaller learning rate? Five updates on one batch, with the right
# loss and with the right loss times that share of tokens:

# %% tags=["anchor:shorter"]
own = laid_out(group.prompts, group.responses)
for kind, lr in ((torch.optim.SGD, 1e-3), (torch.optim.Adam, 5e-4)):
    far, less = (distance(rope, own, A, k, kind, lr=lr) for k in (1, share))
    print(f"{kind.__name__:5}moves the weights {less / far:.3f} times as far, "
          f"with a gradient {share:.3f} times as long")

# %% [markdown]
# Under SGD it is; **Adam divides by the gradient's own size** and takes nearly the same steps.
# The systems cited here train with Adam. What a constant factor still changes there: clipping
# by norm bites less or more; the loss weighs differently against a term with another
# denominator (a KL term, a balance loss); and a batch where the factor is large weighs more
# than one where it is small. So do not expect slow training to give this fault away.

# %% tags=["anchor:padding-in-loss"]
reward, n = torch.tensor(group.reward), own.mask.sum(1)
late = group_advantages(reward * (n == 4), 8)  # the others' falls into padding
names = "padding counts", "another end id", "end does not count", "end trimmed"
grads = {name: in_loss(rope, group, FAULTS[name], A) for name in names}
grads["reward in last column"] = loss_and_grad(rope, own, late)
shifted = group_advantages(reward.roll(1), 8)
grads["rewards one row late"] = loss_and_grad(rope, own, shifted)
grads["mean per response"] = loss_and_grad(rope, own, A / n * n.double().mean())
for name, grad in grads.items():
    print(f"{name:22}{grad.told(right)}; loss {grad.loss:+.4f}")
mine, engine = row_logp(rope, own).detach(), torch.zeros(own.ids.shape)
engine[own.response] = torch.cat(group.logp)
for fault in (Fault(), FAULTS["padding counts"]):
    c = compare(engine, mine, fault.mask(own))
    print(f"rollout, trainer, {c.tokens} tokens: K3 {c.k3:.4f}")

# %% [markdown] tags=["anchor:denominator"]
# **Padding in the loss** divides every real token by more, and trains what the model would
# write after its end; which of the two wins depends on the model. **Padding in logprobs and
# KL**: engines fill buffers with 0.0, which as a logprob says *certain*; the trainer's number
# for a pad id is whatever. K3 of a pair that agrees jumps from nothing. Fingerprint: exact
# zeros in the rollout's logprobs.
#
# **Denominators.** One factor for all tokens (columns instead of tokens; sampled tokens
# instead of kept ones, trl#6369) leaves the direction and scales the gradient, as prompt
# tokens just did, with what that does under SGD and under Adam. Unequal factors, per response
# or per micro-batch, turn it: *mean per response*, where nearly all have 3 or 4, only a
# little. Watch gradient norms: the loss at a first update is near zero whatever divides it.
#
# **The end** masked costs little but the factor here: this policy is already sure of its end,
# so there is next to no gradient in it. A policy that still has to learn it is next.
#
# **A reward in the last column** falls into padding for every answer that ended early, so
# nobody is paid for ending early. **Rewards one row late** is what a filter leaves that
# drops rows from ids and not from rewards: any direction, and a loss like any other. (In
# open-instruct#1794, groups were cut anew out of what a filter had left.)
#
# ## The end of a turn
#
# Many tokenizers have no pad token, people set `pad = eos`, and a mask "all that is not
# pad" hides the real end. And many models end a turn with one of *two* ids, of which a
# trainer knows one. To have both here, demonstrations end with `<end>` after two digits and
# with `<system>`, our second end id, after three. Fresh models, three seeds, a short SFT: mask
# by length against mask by id.

# %%
shares = ["still nearly all", "about half", "nearly none"]
question = "SFT, pad = eos, mask by id: how many two-digit answers end in time?"
predict("05.stop", question, shares)

# %% tags=["anchor:eos"]
def by_id(*batch):
    read, asked = second_end(*batch)
    return read, asked.where(asked != END, -100)  # -100: does not count


kinds, two = ("short", "plain"), (END, tok.system_id)
arms = {"by length": (second_end, "-", style.GOOD),
        "by id": (by_id, "--", style.BAD)}
lessons_2, runs = Mixed(noise(13), kinds), {}
fig, axes = plt.subplots(1, 2, sharey=True)
for name, (mix, look, colour) in arms.items():
    for s in range(3):
        policy = GPT(GPTConfig(), noise(20 + s))
        how = dict(generator=noise(30 + s), steps=200, batch=48, lr=8e-3)
        list(sft(policy, lessons_2, mix=mix, **how))
        for ax, kind in zip(axes, kinds):
            x = rolled_out(policy, noise(41), 300, [kind], max_new=10, ends=two)
            said = [r.tolist() for r in x.responses]
            runs.setdefault((name, kind), []).append(said)
            on = [mean(END not in r[:t] for r in said) for t in range(1, 11)]
            ax.plot(range(1, 11), on, look, color=colour, label=name)
for ax, title in zip(axes, ("Ends with <end>", "Ends with the second id")):
    style.label(ax, title, "token", "responses still without <end>")
axes[0].legend(axes[0].lines[::3], arms)
plt.show()
lost = [mean(END not in r for r in x) for x in runs["by length", "plain"]]
print("three-digit answers without <end>:", *(f"{x:.2f}" for x in lost))
ended = {name: [mean(len(r) == 3 and END in r for r in some)
                for some in runs[name, "short"]] for name in arms}
reveal("05.stop", shares[2 - round(2 * mean(ended["by id"]))])

# %%
claim("share that ends in time, pad = eos, mask by id (control: by length)",
      ended["by id"], at_most=0.1, control=ended["by length"], how="every")

# %% [markdown] tags=["anchor:stop-words"]
# The policy never learned to stop: the one token that does it was never in the loss. (The
# repository tiny-grpo has that mask.) The same happens where an engine **trims** the stop
# word from what it returns: ids without an end although the reason to finish was "stop"
# ([xtuner#1063](https://github.com/InternLM/xtuner/pull/1063) appends it again). Above, *end
# trimmed* and *end does not count* are one gradient.
#
# The **second id**: an engine stops at either (ours did); a trainer that knows one sees a
# response that never ends, the flat lines on the right. It counts as cut off (trl#7039 saw
# 97 %), and is punished or dropped as such. And what comes after it counts: if the trainer pads
# with the id that it knows, the first pad does (*another end id* above).
#
# **Stop strings** are looked for in text, and may end inside a token:

# %% tags=["anchor:stop-strings"]
sampled, stop = [3, 10], "2"  # 3, and the pair 12
text = bpe.decode(sampled).split(stop)[0]
print(f"sampled {sampled}, kept {text}, back {bpe.encode(text).ids}")

# %% [markdown]
# The last token sampled is not in what comes back; one that was never sampled stands in its
# place, and the trainer pays it.
#
# ## Cut responses: reward and mask in step
#
# A response longer than the trainer's limit is cut. Ids, mask, logprobs *and* reward have to
# be cut together. To see it, a group must hold both kinds: here the policy is taught to say
# half of its answers twice, before it ends, and the limit is 3. (Where a whole group is cut,
# all of it has reward 0 and advantage 0, and most of the differences below vanish.)

# %% tags=["anchor:truncation"]
policy = deepcopy(rope)
how = dict(generator=noise(61), steps=150, batch=64, lr=4e-3)
list(sft(policy, lessons, mix=said_twice(noise(60)), **how))
x = rolled_out(policy, noise(62), 48, ["short"], repeat=8)
gone = torch.tensor([len(r) > 3 for r in x.responses])
cut = laid_out(x.prompts, [r[:3] for r in x.responses])
print(f"cut: {gone.double().mean():.0%}")
ways = cut_rewards(says_right(x), gone, 8)
grads = [loss_and_grad(policy, cut, a, cut.response & counts[:, None])
         for a, counts in ways.values()]
print(f"{'cosine to':28}punished  ignored   mean advantage: cut  in time")
for (name, (a, counts)), grad in zip(ways.items(), grads):
    to = [grad.against(other)[0] for other in grads[:2]]
    print(f"{name:28}{to[0]:+8.2f} {to[1]:+8.2f} "
          f"{(a * counts)[gone].mean():+z20.2f} {a[~gone].mean():+z8.2f}")

# %% [markdown]
# - **Two objectives are in step.** Reward 0 *punishes* the cut answer for its length.
#   Leaving it out of the loss and of the group's mean *ignores* it: what is left is paid for
#   being right. Look at their cosine: they have little in common.
# - **Masked, but 0 in the mean** looks like ignoring and works like punishing: answers in
#   time are lifted above a mean that holds zeros. DAPO (arXiv 2503.14476) masks overlong
#   answers; look up which mean your code takes. (Its *overlong penalty* punishes by degrees:
#   a deduction that grows as an answer comes near the limit.)
# - **Reward of the uncut**: the cut answer is paid as if all of it were trained. No length
#   is too long; the ending learns nothing.
# - **Rewards not filtered**: from the first dropped row on, everybody gets another's reward,
#   and the advantages look like any others. A test that sees it: let each row's reward be
#   its row number.
#
# ## Told apart
#
# Sixteen faults, each through the real template, tokenizer, collator or mask, compared as
# lesson 12 will: *inputs first*. Where ids part and by how many; which positions are told;
# who is seen; what counts. *ids: start +1* are ids that part at the start, one more of them;
# *turn -1* part where the assistant's turn opens, one fewer; *counts: all after* is a loss over
# all that comes after the response. Then, apart from these, the delta; and where there is
# none, the gradient of the loss: its cosine to the right one, and how many times as long.

# %% tags=["anchor:told-apart"]
marks, deltas = {name: set() for name in FAULTS}, {}
for which, policy in policies.items():
    for b in range(2):
        x = rolled_out(policy, noise(50 + b), max_new=3)
        for name, fault in FAULTS.items():
            marks[name].add(frozenset(compare_inputs(x, fault)))
            deltas[which, name, b] = measure(policy, x, fault)
print(f"{'':20}{'in the inputs':24}{'|delta| RoPE':>14}  learned  gradient")
sizes = []
for name, found in marks.items():
    told = ", ".join(sorted(set().union(*found)))
    d = [mean(deltas[which, name, b] for b in range(2)) for which in policies]
    sizes.append(tuple(f"{max(size, 1e-6):.0e}"[-3:] for size in d))
    grad = in_loss(rope, group, FAULTS[name], A) if max(d) < 1e-6 else None
    print(f"{name:20}{told:24}{d[0]:14.0e}{d[1]:9.0e} ",
          "{:+.3f} x {:.2f}".format(*grad.against(right)) if grad else "")
print(sizes.count(("-06", "-06")), "faults leave no delta in either model")
claim("faults whose inputs look like another's (control: whose |delta| does)",
      look_alike(marks.values()), equal=0,
      control=look_alike([{size} for size in sizes]))

# %% [markdown]
# On a batch every fault leaves a set of marks that no other leaves. (One conversation may not
# tell: `0 0 7` becomes `7` as a *last word* and as *a number*. But the one rewriting shortens
# every history, the other those that begin with 0.) The delta does not tell them apart.
# Sort the faults by the powers of ten of their deltas in both models: the control counts those
# that share theirs with another. The mask's faults have none at all: they are in the loss
# alone, and even there the gradient may keep its direction. A response that lost or gained an
# end has no delta either: it is compared as far as both sides have it, and there no number is
# wrong. So the order of a search is: ids, positions, who is seen, what counts; then logprobs.
#
# ## For your own stack
#
# - Compare ids, positions and masks of both sides before any logprob. It is an exact test: put it
#   into CI.
# - Hand over ids, never text.
# - Look at the last ids of some responses, and at the share that counts as cut off.
# - Send row numbers through the pipeline as rewards, once: they have to come out in order.
#
# ## Check yourself
#
# Answer aloud, then open.
#
# <details><summary>The ids of prompt and response are equal on both sides. Name three faults
# of this lesson that are still possible, and which of them a delta shows.</summary>
#
# Positions and visibility (a delta shows them, positions under RoPE only when they part
# prompt and answer), and the mask with all that hangs on it, which no delta shows.
# </details>
#
# <details><summary>Left padding, positions by column, RoPE. What happens? And with learned
# positions?</summary>
#
# Nothing: all tokens of a row move together and RoPE sees differences. With learned
# positions every padded row is another problem.
# </details>
#
# <details><summary>Prompt tokens are in GRPO's loss and the reward rises all the same.
# Why?</summary>
#
# In a group, with a mean over tokens, the prompt's gradients cancel while old and new policy
# agree; the gradient is only shorter, which Adam hardly notices. A KL term, later mini-batches
# or SFT do not forgive.
# </details>
#
# <details><summary>97 % of responses count as cut off, at any limit. First suspicion?</summary>
#
# An end id that the trainer does not know. Look at the last ids of the responses.
# </details>
#
# <details><summary>Why check ids before logprobs?</summary>
#
# It is exact and names the place; a delta's size depends on the model, and rare rewrites
# drown in a mean.
# </details>
#
# **Now write it yourself**: [lab 05](../labs/lab05_templates/lab05_templates.ipynb), eight
# functions, each checked at once.
#
# ## Where to read on
#
# - `transformers`, "Chat templates": what a template can do, and generation prompts
# - Token in, token out over several turns: verl#6719; two end ids: trl#7039
# - RoPE: arXiv 2104.09864; learned positions as in GPT-2
# - Token-level loss and overlong answers: DAPO, arXiv 2503.14476
#
# ## 中文小结
#
# 1. logprob 是条件概率：条件是 ids、位置和可见范围。条件变了，数字没算错，问题已经不同。
# 2. 模板是策略的一部分：`<bos>` 重复、缺少生成提示、单侧系统提示、改写历史，都会换掉条件。
# 3. delta 的大小不代表错误的大小：同一个错误在两个模型上造成的 delta 可能相差悬殊，所以先比对 ids。
# 4. 文本不等于 ids：截断的回答经文本往返会多出结束符，BPE 会把两个 token 合成一个。
# 5. 右侧填充不会出错；左侧填充和打包必须遮住填充和相邻的对话；按列编号只伤害可学习的位置编码。
# 6. RoPE 下整体平移毫无影响，只平移回答部分则全毁；可学习的位置编码两种都毁。
# 7. prompt 计入按 token 平均的 GRPO 损失：首次更新时梯度方向不变、只是变短；有 KL 项或采样策略较旧时方向也错。
# 8. 填充位的 0.0 被当成“概率为 1”，会凭空产生 KL；对所有 token 相同的分母只缩放梯度（SGD 步长随之变，Adam 几乎不变）；各回答不同则会改变方向。
# 9. pad 与 eos 共用同一个 id、又按 id 屏蔽，模型学不会停；只认一个结束符，正常回答会被当成截断。
# 10. 截断的回答记 0 分是惩罚，从损失和组均值中都剔除才是忽略；十六种错误按批次比对输入就能分清。
