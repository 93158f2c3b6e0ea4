"""verl's losses, rollout correction and advantages, called by their own names.

See `serve.py` for how. Arrays are float64; verl's own constants stay what it makes them.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from measure import measured
from serve import Answer, serve, with_gradient
from torch import Tensor
from verl.protocol import DataProto
from verl.trainer.config import RolloutCorrectionConfig
from verl.trainer.ppo import core_algos, rollout_corr_helper
from verl.utils.debug.metrics import calculate_debug_metrics
from verl.workers.config import ActorConfig, PolicyLossConfig


def policy_loss(
    tensors: dict[str, Tensor],
    name: str,
    loss_agg_mode: str = "token-mean",
    rollout_correction: dict[str, Any] | None = None,
    global_batch: dict[str, Any] | None = None,
    loss_scale_factor: int | None = None,
    **config: Any,
) -> Answer:
    """A registered policy loss. `logp`, `logp_old`, `advantages [B, T]`, `mask`, `weight`.

    With `rollout_correction` for "bypass_mode", where `logp_old` is the rollout's, and
    `global_batch` for the counts that verl's trainer passes: see its `agg_loss`.
    """
    actor = ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        loss_agg_mode=loss_agg_mode,
        global_batch_info={
            "loss_scale_factor": loss_scale_factor,
            **(global_batch or {}),
        },
        policy_loss=PolicyLossConfig(
            loss_mode=name,
            rollout_correction=RolloutCorrectionConfig(**(rollout_correction or {})),
        ),
        **config,
    )
    logp = tensors["logp"].requires_grad_()
    loss, metrics = core_algos.get_policy_loss_fn(name)(
        old_log_prob=tensors["logp_old"],
        log_prob=logp,
        advantages=tensors["advantages"],
        response_mask=tensors["mask"],
        loss_agg_mode=loss_agg_mode,
        config=actor,
        rollout_is_weights=tensors.get("weight"),
    )
    return {**with_gradient(loss, logp), "metrics": metrics}


def names(tensors: dict[str, Tensor]) -> Answer:
    """Of the policy losses that are registered."""
    return {"losses": sorted(core_algos.POLICY_LOSS_REGISTRY)}


def agg_loss(
    tensors: dict[str, Tensor], mode: str, loss_scale_factor: int | None = None
) -> Answer:
    """`agg_loss` of a matrix `x [B, T]` under `mask`."""
    x = tensors["x"].requires_grad_()
    loss = core_algos.agg_loss(
        x, tensors["mask"], mode, loss_scale_factor=loss_scale_factor
    )
    return with_gradient(loss, x)


def rollout_correction(tensors: dict[str, Tensor], **config: Any) -> Answer:
    """Weights, the mask left and metrics of `logp_train` against `logp_rollout`."""
    helper = rollout_corr_helper.compute_rollout_correction_and_rejection_mask
    weights, mask, metrics = helper(
        old_log_prob=tensors["logp_train"],
        rollout_log_prob=tensors["logp_rollout"],
        response_mask=tensors["mask"],
        **config,
    )
    answer: Answer = {"mask": mask, "metrics": metrics}
    if weights is not None:
        answer["weight"] = weights.batch["rollout_is_weights"]
    return answer


def probabilities(tensors: dict[str, Tensor]) -> Answer:
    """verl's metrics of probabilities, which its trainer logs under training/."""
    batch = {
        "old_log_probs": tensors["logp_train"],
        "rollout_log_probs": tensors["logp_rollout"],
        "response_mask": tensors["mask"],
        "responses": tensors["mask"],
    }
    return {"metrics": calculate_debug_metrics(DataProto.from_dict(tensors=batch))}


def cost(tensors: dict[str, Tensor], **config: Any) -> Answer:
    """Of one `rollout_correction`, its arrays in memory already."""
    here = {name: x.clone() for name, x in tensors.items()}
    return measured(lambda: rollout_correction(here, **config))


def recipes(tensors: dict[str, Tensor]) -> Answer:
    """The fields of each preset of `RolloutCorrectionConfig`, and its defaults."""
    fields = vars(RolloutCorrectionConfig()).keys() - {"extra"}
    makers = {"default": RolloutCorrectionConfig} | {
        name: getattr(RolloutCorrectionConfig, name)
        for name, member in vars(RolloutCorrectionConfig).items()
        if isinstance(member, classmethod)
    }
    made = {name: maker() for name, maker in makers.items()}
    return {n: {f: getattr(made[n], f) for f in sorted(fields)} for n in made}


def defaults(tensors: dict[str, Tensor]) -> Answer:
    """The actor's numbers where a user sets none."""
    actor = ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1)
    plain = (bool, int, float, str, type(None))
    return {k: v for k, v in vars(actor).items() if isinstance(v, plain)}


def kl_penalty(tensors: dict[str, Tensor], kind: str) -> Answer:
    """Sum over the mask of verl's KL to a reference, with its gradient."""
    logp = tensors["logp"].requires_grad_()
    kl = core_algos.kl_penalty(logp, tensors["logp_ref"], kind)
    return with_gradient(torch.where(tensors["mask"].bool(), kl, 0.0).sum(), logp)


def advantages(tensors: dict[str, Tensor], name: str, **options: Any) -> Answer:
    """A registered advantage estimator; `index [B]` names each row's group."""
    function = core_algos.get_adv_estimator_fn(name)
    arguments: dict[str, Any] = {"response_mask": tensors["mask"], **options}
    arguments["token_level_rewards"] = tensors["rewards"]
    if "values" in tensors:
        arguments["values"] = tensors["values"]
    if "index" in tensors:
        arguments["index"] = tensors["index"].numpy()
    known = inspect.signature(function).parameters
    got, returns = function(**{k: v for k, v in arguments.items() if k in known})
    return {"advantages": got, "returns": returns}


def value_loss(tensors: dict[str, Tensor], clip: float, mode: str = "token-mean") -> Answer:
    """PPO's loss of the value head."""
    values = tensors["values"].requires_grad_()
    loss, _ = core_algos.compute_value_loss(
        vpreds=values,
        returns=tensors["returns"],
        values=tensors["values_old"],
        response_mask=tensors["mask"],
        cliprange_value=clip,
        loss_agg_mode=mode,
    )
    return with_gradient(loss, values)


if __name__ == "__main__":
    losses = (names, policy_loss, agg_loss, value_loss, kl_penalty, advantages)
    corrections = (rollout_correction, probabilities, cost, recipes, defaults)
    calls = {f.__name__: f for f in (*losses, *corrections)}
    serve(["verl", "torch", "transformers"], calls)
