"""R3: the rollout's experts, weighed by the trainer's own logits."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab07.routed import (
    ALL,
    BEYOND,
    FINITE,
    above_next,
    router_logits,
)
from tinyrl.course.words import Words


def _top(logits: Tensor, k: int) -> Tensor:
    """Boolean, as `logits`: the k largest of each row."""
    return torch.zeros_like(logits).scatter(-1, logits.topk(k).indices, 1.0) > 0


def _over(logits: Tensor, chosen: Tensor) -> Tensor:
    """Softmax of each row over the chosen; 0 where nothing is."""
    gates = logits.masked_fill(~chosen, -torch.inf).softmax(-1)
    return torch.where(chosen, gates, 0.0)


def reference(logits_train: Tensor, logits_rollout: Tensor, k: int) -> Tensor:
    experts = logits_rollout.topk(k).indices
    gates = torch.softmax(logits_train.gather(-1, experts), -1)
    return torch.zeros_like(logits_train).scatter(-1, experts, gates)


def _masked(logits_train: Tensor, logits_rollout: Tensor, k: int) -> Tensor:
    return _over(logits_train, _top(logits_rollout, k))


def _by_rows(logits_train: Tensor, logits_rollout: Tensor, k: int) -> Tensor:
    rows = []
    for mine, theirs in zip(logits_train, logits_rollout, strict=True):
        experts = theirs.argsort(descending=True)[:k]
        row = torch.zeros_like(mine)
        rows.append(row.index_put((experts,), mine[experts].log_softmax(0).exp()))
    return torch.stack(rows)


def _both(logits_train: Tensor, logits_rollout: Tensor, k: int) -> Tensor:
    return _over(logits_train, _top(logits_train, k) & _top(logits_rollout, k))


def _either(logits_train: Tensor, logits_rollout: Tensor, k: int) -> Tensor:
    return _over(logits_train, _top(logits_train, k) | _top(logits_rollout, k))


def _average(logits_train: Tensor, logits_rollout: Tensor, k: int) -> Tensor:
    mine = _over(logits_train, _top(logits_rollout, k))
    return (mine + _over(logits_rollout, _top(logits_rollout, k))) / 2


def _by_rank(logits_train: Tensor, logits_rollout: Tensor, k: int) -> Tensor:
    """The trainer's gates in falling order, given to the rollout's experts in theirs."""
    gates = logits_train.topk(k).values.softmax(-1)
    experts = logits_rollout.topk(k).indices
    return torch.zeros_like(logits_train).scatter(-1, experts, gates)


def _among_all(logits_train: Tensor, logits_rollout: Tensor, k: int) -> Tensor:
    return logits_train.softmax(-1) * _top(logits_rollout, k)


def _divided(logits_train: Tensor, logits_rollout: Tensor, k: int) -> Tensor:
    kept = _among_all(logits_train, logits_rollout, k)
    return kept / kept.sum(-1, keepdim=True)


MISTAKES: Mistakes = {
    "own_choice": (
        lambda train, rollout, k: _over(train, _top(train, k)),
        Words(
            en="The trainer chooses for itself here, so nothing is replayed. The experts "
            "come from logits_rollout.",
            zh="这里训练端仍在自己选专家，什么也没有回放。专家应当由 logits_rollout 决定。",
        ),
    ),
    "gates_replayed": (
        lambda train, rollout, k: _over(rollout, _top(rollout, k)),
        Words(
            en="You replay the gates as well. They are then constants, and no gradient "
            "reaches the trainer's router: take the gates from logits_train.",
            zh="你把权重也一起回放了。权重成了常数，梯度传不到训练端的路由器：权重应当来自"
            " logits_train。",
        ),
    ),
    "roles_swapped": (
        lambda train, rollout, k: _over(rollout, _top(train, k)),
        Words(
            en="The roles are swapped: these are the trainer's experts with the rollout's "
            "gates.",
            zh="角色反了：你用的是训练端的专家和采样端的权重。",
        ),
    ),
    "among_all": (
        _among_all,
        Words(
            en="The gates are shares among all experts and do not sum to 1. Take the "
            "softmax over the replayed set alone.",
            zh="权重是在全部专家上的占比，加起来不是 1。softmax 只在回放的集合上取。",
        ),
    ),
    "both": (
        _both,
        Words(
            en="You keep only experts that both engines chose. The rollout used k, and the "
            "trainer has to use the same k.",
            zh="你只保留了两边都选中的专家。采样端用了 k 个，训练端必须用同样的 k 个。",
        ),
    ),
    "either": (
        _either,
        Words(
            en="You use every expert that either engine chose: more than k, and a path "
            "that neither engine took.",
            zh="你用了任何一侧选中的所有专家：超过 k 个，而且两边都没走过这条路径。",
        ),
    ),
    "average": (
        _average,
        Words(
            en="You average the two engines' gates. Asked for are the trainer's alone: it "
            "is the trainer's probability that is computed.",
            zh="你对两边的权重取了平均。应当只用训练端的：要算的是训练端的概率。",
        ),
    ),
    "by_rank": (
        _by_rank,
        Words(
            en="The trainer's gates were computed for its own experts and then handed to "
            "the rollout's by rank. Gather the logits of the replayed experts first.",
            zh="你先按训练端自己的专家算出权重，再按名次发给采样端的专家。应当先取出被回放"
            "专家的 logits。",
        ),
    ),
    "equal_shares": (
        lambda train, rollout, k: _top(rollout, k) / k,
        Words(
            en="Each replayed expert gets 1 / k. The gates come from logits_train.",
            zh="每个被回放的专家都得到 1 / k。权重应当来自 logits_train。",
        ),
    ),
    "one_beyond": (
        lambda train, rollout, k: _over(train, above_next(rollout, k)),
        BEYOND,
    ),
    "compact": (
        lambda train, rollout, k: train.gather(-1, rollout.topk(k).indices).softmax(-1),
        Words(
            en="The gates are right, but nobody knows whose they are: put each into the "
            "column of its expert, `[N, E]`.",
            zh="权重算对了，但看不出属于哪个专家：请放到对应专家的列里，形状 `[N, E]`。",
        ),
    ),
    "divided": (
        _divided,
        Words(
            en="You divide shares (or exps) of the replayed experts by their sum: where "
            "the trainer finds these experts hopeless both underflow, and 0 / 0 is NaN. "
            "Gather their logits first, then take the softmax over them.",
            zh="你用被回放专家的占比（或 exp）除以它们的和：训练端认为这些专家毫无可能时两"
            "者都下溢，0 / 0 得 NaN。应当先取出它们的 logits，再在其上做 softmax。",
        ),
    ),
    "detach": (
        lambda train, rollout, k: reference(train, rollout, k).detach(),
        Words(
            en="The gates are right, but no gradient reaches logits_train. That the router "
            "still learns is the point of recomputing them.",
            zh="权重数值正确，但梯度传不到 logits_train。重新计算权重正是为了让路由器还能"
            "学习。",
        ),
    ),
    "zeros_left_in": (
        lambda train, rollout, k: (train * _top(rollout, k)).softmax(-1),
        Words(
            en="You set the other logits to 0 before the softmax, and exp(0) is 1: they "
            "still get a share. Minus infinity is the logit of what is out.",
            zh="你在 softmax 之前把其他 logit 置成 0，而 exp(0) = 1，它们仍占份额。应当置为"
            "负无穷。",
        ),
    ),
    "finite_fill": (
        lambda train, rollout, k: train.masked_fill(~_top(rollout, k), -6e4).softmax(-1),
        FINITE,
    ),
}

BY_HAND = Words(
    en="two tokens; the engines agree on the first alone",
    zh="两个 token；两边只在第一个上一致",
)
AGREE = Words(
    en="both engines have the same logits: replay changes nothing",
    zh="两边 logits 相同：回放不改变任何东西",
)
ONE = Words(en="k = 1: a gate of 1", zh="k = 1：权重就是 1")
APART = Words(en="engines that often disagree", zh="经常不一致的两个引擎")
MOST = Words(
    en="most experts are chosen, some with logits below 0",
    zh="选中大部分专家，其中有些 logit 小于 0",
)
HOPELESS = Words(
    en="the trainer finds the replayed experts hopeless",
    zh="训练端认为被回放的专家毫无可能",
)
GRADIENT = Words(
    en="the same with gradients, on some tokens other experts near 1000",
    zh="要求梯度，有些 token 上其他专家的 logit 接近 1000",
)


def cases(generator: Generator) -> list[Case]:
    def pair(tokens: int, experts: int) -> tuple[Tensor, Tensor]:
        """Of the trainer's logits each row has one 0, that of the rollout's favourite."""
        a, b = (router_logits(generator, tokens, experts) for _ in range(2))
        return a.scatter(-1, b.argmax(-1, keepdim=True), 0.0), b

    train = torch.tensor([[2.0, 1.0, 0.5, -1.0], [1.0, 0.75, 0.5, -1.0]])
    rollout = torch.tensor([[1.75, 1.25, 0.5, -1.0], [1.25, 0.25, 0.75, -1.0]])
    same, _ = pair(6, 8)
    mine, theirs = pair(6, 8)
    sloped, chosen = pair(8, 8)
    sloped[:2] += 1000.0 * ~_top(chosen, 2)[:2]  # hidden from a value, not from backward
    return [
        Case("example", BY_HAND, (train, rollout, 2)),
        Case("property", AGREE, (same, same.clone(), 2)),
        Case("property", ONE, (*pair(6, 5), 1)),
        Case("property", ALL, (*pair(6, 4), 4)),
        Case("inputs", APART, (*pair(8, 8), 2)),
        Case("inputs", APART, (*pair(12, 10), 3)),
        Case("inputs", MOST, (*pair(5, 8), 6)),
        Case("gradient", GRADIENT, (sloped, chosen, 2)),
        Case("numbers", HOPELESS, (mine - 1e5 * _top(theirs, 2), theirs, 2)),
    ]


EXERCISE = Exercise(
    name="replayed_gates",
    title=Words(en="Replay the rollout's experts (R3)", zh="回放采样端的专家（R3）"),
    reference=reference,
    returns=("gates",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"masked_softmax": _masked, "row_by_row": _by_rows},
    hints=(
        Words(
            en="Two questions, two engines: who decides which experts, who decides how "
            "much of each?",
            zh="两个问题、两个引擎：谁决定用哪些专家，谁决定各占多少？",
        ),
        Words(
            en="Experts: the top k of logits_rollout. Gates: softmax of logits_train over "
            "just these.",
            zh="专家：logits_rollout 的前 k 个。权重：logits_train 在这些专家上的 softmax"
            "。",
        ),
        Words(
            en="`experts = logits_rollout.topk(k).indices`, "
            "`gates = logits_train.gather(-1, experts).softmax(-1)`, then scatter.",
            zh="`experts = logits_rollout.topk(k).indices`，"
            "`gates = logits_train.gather(-1, experts).softmax(-1)`，最后 scatter。",
        ),
    ),
    points=(1, 2),
    minutes=7,
    gradient=("logits_train",),
    data=("logits_rollout",),
)
