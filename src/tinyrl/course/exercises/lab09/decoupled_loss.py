"""Three policies: the correction's weight beside PPO's clip."""

from __future__ import annotations

import torch
from torch import Generator

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab01 import batch
from tinyrl.course.exercises.lab09 import slips
from tinyrl.course.exercises.lab09 import three_policies as loss
from tinyrl.course.exercises.lab09.weighed import advantages
from tinyrl.course.words import Words

MISTAKES: Mistakes = {
    "no_weight": (
        loss.no_weight,
        Words(
            en="The correction is missing: this is PPO on recomputed old logprobs, which "
            "knows nothing of the rollout's policy.",
            zh="缺少修正权重：这是用重算的 old logprob 做的 PPO，对采样策略一无所知。",
        ),
    ),
    "bypass": (
        loss.merged,
        Words(
            en="Your clip sees p_new / p_rollout and there is no weight: that is the "
            "bypass. Decoupled, the clip is centred on p_old, and the weight stands "
            "outside.",
            zh="你的裁剪看到的是 p_new / p_rollout，且没有权重：那是 bypass。decoupled 的"
            "裁剪以 p_old 为中心，权重在外面。",
        ),
    ),
    "twice": (
        loss.twice,
        Words(
            en="rho is counted twice: in the clipped ratio, and as a weight.",
            zh="rho 计了两次：裁剪的比值里一次，权重又一次。",
        ),
    ),
    "weight_of_new": (
        loss.of_new,
        Words(
            en="Your weight is p_new / p_rollout: it holds the update as well, which the "
            "ratio beside it has already. The weight is p_old / p_rollout.",
            zh="你的权重是 p_new / p_rollout，其中已含更新，而旁边的比值又算一次。权重应"
            "为 p_old / p_rollout。",
        ),
    ),
    "inside": (
        loss.inside,
        Words(
            en="The weight is inside the clip, which then cuts by the mismatch. Outside, "
            "it multiplies what the clip has made of r.",
            zh="权重进了裁剪内部，裁剪就会按不一致来截。它应在外面，乘在裁剪之后的结果上。",
        ),
    ),
    "uncapped": (
        loss.uncapped,
        Words(en="The weight has no cap.", zh="权重没有设上界。"),
    ),
    "masked": (
        loss.masked,
        Words(
            en="Above the cap your weight is 0: a mask. Here it is truncated.",
            zh="超过上界时你的权重成了 0，那是屏蔽。这里是截断。",
        ),
    ),
    "both_sides": (
        loss.both_sides,
        Words(
            en="You clamp the weight from below as well, at 1 / cap. It has an upper bound "
            "only: a small weight stays small.",
            zh="你把权重的下侧也截断在 1 / cap。权重只有上界：小权重保持原样。",
        ),
    ),
    "dropped_below": (
        loss.dropped_below,
        Words(
            en="You drop tokens with a weight below 1/2, as IcePop does. Here the weight "
            "has an upper bound only.",
            zh="你丢掉了权重低于 1/2 的 token（如 IcePop）。这里权重只有上界。",
        ),
    ),
    "dual_clip": (
        loss.dual_clip,
        Words(
            en="You bound the loss of bad responses by 3 |A|: dual clip. It is not asked "
            "for: r of a bad token has no upper bound here.",
            zh="你把坏回答的损失限制在 3 |A| 以内，那是 dual clip。题目没有要求：坏 token "
            "的 r 在这里没有上界。",
        ),
    ),
    "finite_only": (
        loss.finite_only,
        Words(
            en="A loss that is not finite is dropped. That hides a policy that has blown "
            "up: only the mask says which tokens count.",
            zh="你丢掉了非有限的损失，策略发散就看不出来了。哪些 token 算数只看 mask。",
        ),
    ),
    "upside_down": (
        loss.upside_down,
        Words(
            en="The weight is upside down: p_old above, p_rollout below.",
            zh="权重倒过来了：p_old 在上，p_rollout 在下。",
        ),
    ),
    "min_for_max": (
        loss.min_for_max,
        Words(
            en="Of a *loss* PPO takes the larger one: max(-A r, -A clip(r)). Your min "
            "follows whatever looks best, and the clip never holds.",
            zh="对 *损失* 来说 PPO 取较大者：max(-A r, -A clip(r))。取 min 等于总挑好看"
            "的，裁剪形同虚设。",
        ),
    ),
    "always_clipped": (
        loss.always_clipped,
        Words(
            en="You use clip(r) alone. Where a bad token became likelier the clip must "
            "not stop the gradient: that is what the max is for.",
            zh="你只用了 clip(r)。坏 token 变得更可能时，裁剪不应挡住梯度：max 就是为此。",
        ),
    ),
    "sign": (
        lambda *args: -loss.reference(*args),
        Words(
            en="The sign is turned round: this would unlearn. The loss is minimised.",
            zh="符号反了，这样会越学越差。损失是要最小化的。",
        ),
    ),
    "columns": (
        loss.columns,
        Words(
            en="You divide by all columns, padding included. Divide by real tokens.",
            zh="你除以了所有列，包括 padding。应除以真实 token 数。",
        ),
    ),
    "by_response": (
        loss.by_response,
        Words(
            en="This is the mean of the responses' means. Asked for is the mean over "
            "tokens.",
            zh="这是各回答均值的均值。题目要的是对 token 取平均。",
        ),
    ),
    "summed": (
        lambda *args: loss.reference(*args) * args[4].sum(),
        Words(
            en="This is the sum over tokens. Divide by how many.",
            zh="这是总和，还要除以个数。",
        ),
    ),
    "by_weight": (
        loss.by_weight,
        Words(
            en="You divide by the sum of the weights: self-normalised. Divide by the "
            "number of tokens.",
            zh="你除以了权重之和，那是自归一化。应除以 token 数。",
        ),
    ),
    "times_mask": (
        loss.times_mask,
        Words(
            en="Padding holds NaN, and NaN * 0 is NaN. Clean the logprobs by "
            "`torch.where` first.",
            zh="padding 里是 NaN，NaN * 0 还是 NaN。先用 `torch.where` 清理 logprob。",
        ),
    ),
    "where_after": (
        loss.where_after,
        Words(
            en="The value is right, the gradient is NaN in padding: a `where` behind "
            "`exp` lets it through. Clean the logprobs before exp.",
            zh="数值正确，但 padding 处的梯度是 NaN：在 `exp` 之后才 `where` 挡不住。应先"
            "清理 logprob。",
        ),
    ),
    "weight_attached": (
        loss.weight_attached,
        Words(
            en="The value is right, but a gradient flows through the weight into logp_old "
            "and logp_rollout. Both are records of the past: `detach()`.",
            zh="数值正确，但梯度经由权重流进了 logp_old 和 logp_rollout。两者都是过去的记"
            "录，要 `detach()`。",
        ),
    ),
    "detach": (
        lambda new, *others: loss.reference(new.detach(), *others),
        Words(
            en="The value is right, but no gradient reaches logp_new.",
            zh="数值正确，但梯度传不到 logp_new。",
        ),
    ),
} | slips.DECOUPLED

HAND = Words(
    en="one good and one bad response of one token, by hand", zh="一好一坏两条单 token 回答"
)
FIRST = Words(
    en="before the first update: r is 1, only the weight acts",
    zh="第一次更新之前：r 为 1，只有权重起作用",
)
FAR = Words(
    en="tokens that the rollout found impossible: e^95 times less likely",
    zh="rollout 认为几乎不可能的 token：概率小了 e^95 倍",
)
GREW = Words(
    en="tokens that the update has made e^22 times likelier",
    zh="更新之后概率变为 e^22 倍的 token",
)
BURST = Words(
    en="tokens that became e^800 times likelier: inf is to be seen, not dropped",
    zh="概率变为 e^800 倍的 token：inf 应当看得见，不能丢掉",
)
ZERO = Words(
    en="another clip and cap; one advantage is 0",
    zh="另一组裁剪和上界；有一个 advantage 为 0",
)
CLIPS = Words(
    en="random tokens on both sides of clip and cap", zh="随机 token，裁剪和上界的两侧都有"
)


def cases(generator: Generator) -> list[Case]:
    def drawn(
        rows: int, columns: int, eps: float, cap: float, padding: batch.Padding = "finite"
    ) -> loss.Args:
        """Each kind of token stands in every response, far enough from clip and cap."""
        mask = batch.mask_of(generator, rows, columns) | (torch.arange(columns) < 4)
        old = batch.uniform(generator, (rows, columns), -6.0, -3.5)
        drift = batch.uniform(generator, (rows, columns), -0.08, 0.08)
        gap = batch.uniform(generator, (rows, columns), -0.35, 0.35)
        far = batch.uniform(generator, (rows, 4), 0.45, 0.6)
        drift[:, :4] = far * torch.tensor([1.0, -1.0, 2.8, -2.8])  # r of 3.5 to 5.4
        over = batch.uniform(generator, (rows, 4), 0.3, 0.5) + torch.tensor(cap).log()
        gap[:, :2] = over[:, :2]
        gap[:, 2] = -batch.uniform(generator, (rows,), 0.8, 1.0)  # rho below 1/2, 1 / cap
        gap[:, 3] = -batch.uniform(generator, (rows,), 2.0, 2.5)
        sides = (old + drift, old, old - gap)
        new, old, roll = (batch.garbage(generator, x, mask, padding) for x in sides)
        return new, old, roll, advantages(generator, rows), mask, eps, cap

    probabilities = [[0.3], [0.5]], [[0.2], [0.4]], [[0.1], [0.5]]
    new, old, roll = (torch.tensor(x).log() for x in probabilities)
    real = torch.ones(2, 1, dtype=torch.bool)
    _, same, mu, A, mask, eps, cap = drawn(3, 7, 0.2, 1.5)
    same[:, 3] = mu[:, 3] = 0.0  # a token of probability 1
    late, before, mu_2, signs, some, *bounds = drawn(3, 7, 0.2, 1.5)
    never = mu_2 - 95.0 * (torch.arange(7) == 1)
    wide = drawn(4, 9, 0.3, 2.0)
    wide[3][0] = 0.0  # advantages
    _, small, mu_3, good, there, *limits = drawn(4, 6, 0.2, 1.5)
    down = 25.0 * (torch.arange(6) == 2)
    burst = small - 32 * down, mu_3 - 32 * down
    return [
        Case("example", HAND, (new, old, roll, torch.tensor([1.0, -1.0]), real, 0.2, 1.5)),
        Case("property", FIRST, (same, same, mu, A, mask, eps, cap)),
        Case("inputs", CLIPS, drawn(3, 7, 0.2, 1.5)),
        Case("inputs", ZERO, wide),
        Case("padding", batch.NAN, drawn(3, 8, 0.2, 1.5, "nan")),
        Case("gradient", batch.GRADIENT, drawn(4, 8, 0.2, 1.5, "nan")),
        Case("numbers", FAR, (late, before, never, signs, some, *bounds)),
        Case(
            "numbers",
            GREW,
            (
                small - down + 22 / 25 * down,
                small - down,
                mu_3 - down,
                good,
                there,
                *limits,
            ),
        ),
        Case("numbers", BURST, (small, *burst, good, there, *limits)),
    ]


EXERCISE = Exercise(
    name="decoupled_loss",
    title=Words(en="Three policies in one loss", zh="一个损失里的三个策略"),
    reference=loss.reference,
    returns=("loss",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"selected": loss.selected, "by_cases": loss.by_cases},
    hints=(
        Words(
            en="Two ratios of neighbours in time: p_old / p_rollout weighs, p_new / p_old "
            "is clipped. Which of them learns?",
            zh="相邻两个时刻各有一个比值：p_old / p_rollout 作权重，p_new / p_old 被裁剪。"
            "哪一个带梯度？",
        ),
        Words(
            en="Clean all three logprobs, detach two. Loss of a token: weight times "
            "max(-A r, -A clip(r)); then the mean over real tokens.",
            zh="三个 logprob 都先清理，两个 detach。每个 token 的损失：权重乘 max(-A r, "
            "-A clip(r))；再对真实 token 取平均。",
        ),
        Words(
            en="`rho.clamp(max=cap) * torch.maximum(-A * r, -A * r.clamp(1 - eps, 1 + "
            "eps))` with `A = advantages[:, None]`, times mask, summed, over `mask.sum()`.",
            zh="令 `A = advantages[:, None]`，算 `rho.clamp(max=cap) * torch.maximum(-A * "
            "r, -A * r.clamp(1 - eps, 1 + eps))`，乘 mask 求和，除以 `mask.sum()`。",
        ),
    ),
    points=(1, 3),
    minutes=11,
    gradient=("logp_new",),
    data=("logp_old", "logp_rollout"),
    floor=1.0,  # terms of both signs
)
