"""TRL's GRPOTrainer: its own loss and its own correction, on log-probabilities given.

The trainer is not built: a stand-in inherits its methods, has the attributes that they
read, and answers with the given arrays where the trainer would sample, run a model or
call a reward function. See `serve.py` for how it is asked.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import torch
from accelerate import Accelerator
from serve import Answer, serve, with_gradient
from torch import Tensor
from trl import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

FOLDER = tempfile.mkdtemp()


class StandIn(GRPOTrainer):
    """What `_compute_loss` and `_generate_and_score_completions` read of a trainer."""

    def __init__(self, tensors: dict[str, Tensor], config: GRPOConfig) -> None:
        self.args, self.given = config, tensors
        for name in COPIED:
            setattr(self, name, getattr(config, name))
        high = config.epsilon_high
        self.epsilon_low = config.epsilon
        self.epsilon_high = config.epsilon if high is None else high
        self.model = SimpleNamespace(training=True, is_gradient_checkpointing=False)
        self.ref_model = SimpleNamespace()
        self.accelerator = Accelerator(cpu=True)
        self.current_gradient_accumulation_steps = 1
        self.aux_loss_enabled = self._entropy_bonus_enabled = False
        self.pad_to_multiple_of = self.environment_factories = self.environments = None
        self.tools, self._is_vlm = [], False
        self._tokenizer = SimpleNamespace(pad_token_id=0)
        self.reward_weights, self.reward_func_names = torch.ones(1), ["given"]
        self._metrics = {"train": defaultdict(list)}
        self._logs: Any = defaultdict(list)
        self._logs["rewards"] = defaultdict(list)
        self._pending_extra_logs, self._pending_metrics = {}, {}

    @property
    def _length(self) -> list[int]:
        """Tokens of each row up to its last real one: those after it are padding."""
        columns = torch.arange(self.given["mask"].shape[1]) + 1
        return (self.given["mask"] * columns).amax(1).tolist()

    def _generate(self, prompts: list[Any]) -> Any:
        rows = range(len(prompts))
        upto = list(zip(rows, self._length, strict=True))
        ids = [[1] * n for _, n in upto]
        tools = [self.given["mask"][b, :n].tolist() for b, n in upto]
        logps = [self.given["logp_rollout"][b, :n].tolist() for b, n in upto]
        return [[1] for _ in rows], ids, tools, ["" for _ in rows], logps, {}, None, []

    def _get_per_token_logps_and_entropies(self, model: Any, *_: Any, **__: Any) -> Any:
        """The model's, the reference's, or without gradient those before the update."""
        name = "logp" if torch.is_grad_enabled() else "logp_old"
        x = self.given["logp_ref" if model is self.ref_model else name]
        return x, torch.zeros_like(x), None

    def _calculate_rewards(self, *_: Any) -> Tensor:
        return self.given["rewards"][:, None]


COPIED = (
    *("beta", "loss_type", "importance_sampling_level", "off_policy_mask_threshold"),
    *("use_vllm", "vllm_importance_sampling_correction", "vllm_importance_sampling_mode"),
    *("vllm_importance_sampling_clip_max", "vllm_importance_sampling_clip_min"),
    *("max_completion_length", "num_generations", "num_iterations", "scale_rewards"),
    *("multi_objective_aggregation", "mask_truncated_completions", "log_multimodal"),
    *("top_entropy_quantile",),
)
"""Attributes that a trainer takes over from its configuration as they are."""


def _trainer(tensors: dict[str, Tensor], options: dict[str, Any]) -> StandIn:
    rows = len(tensors["mask"])
    fixed = {"report_to": "none", "use_cpu": True, "bf16": False, "output_dir": FOLDER}
    sizes = {"per_device_train_batch_size": rows, "steps_per_generation": 1}
    options = {"num_generations": rows, **options}
    return StandIn(tensors, GRPOConfig(**fixed, **sizes, **options))


def _metrics(trainer: StandIn) -> dict[str, float]:
    return {name: values[-1] for name, values in trainer._metrics["train"].items()}


def loss(tensors: dict[str, Tensor], **options: Any) -> Answer:
    """`_compute_loss` of `logp`, `logp_old`, `advantages`, `mask`; with `weight [B, T]` or
    `[B, 1]` as the importance-sampling ratio, `logp_ref`, `logp_rollout`."""
    tensors["logp"].requires_grad_()
    trainer = _trainer(tensors, {"use_vllm": "weight" in tensors, **options})
    mask = tensors["mask"]
    ids = torch.ones_like(mask)
    inputs = {
        "prompt_ids": ids[:, :1],
        "prompt_mask": ids[:, :1],
        "completion_ids": ids,
        "completion_mask": mask,
        "advantages": tensors["advantages"],
        "num_items_in_batch": mask.sum(),
        "old_per_token_logps": tensors["logp_old"],
    }
    for theirs, ours in {
        "importance_sampling_ratio": "weight",
        "ref_per_token_logps": "logp_ref",
        "sampling_per_token_logps": "logp_rollout",
    }.items():
        if ours in tensors:
            inputs[theirs] = tensors[ours]
    value = trainer._compute_loss(trainer.model, inputs)
    return {**with_gradient(value, tensors["logp"]), "metrics": _metrics(trainer)}


def step(tensors: dict[str, Tensor], **options: Any) -> Answer:
    """From rewards and the two old log-probabilities to the loss, as in a training step.

    `logp`, `logp_old` (the trainer's), `logp_rollout`, `rewards [B]`, `mask`. Answers with
    the importance-sampling ratio, the advantages, the loss and its gradient.
    """
    tensors["logp"].requires_grad_()
    trainer = _trainer(tensors, {"use_vllm": True, **options})
    rows = len(tensors["mask"])
    inputs = trainer._generate_and_score_completions([{"prompt": ""} for _ in range(rows)])
    value = trainer._compute_loss(trainer.model, inputs)
    return {
        "weight": inputs["importance_sampling_ratio"],
        "advantages": inputs["advantages"],
        **with_gradient(value, tensors["logp"]),
        "metrics": _metrics(trainer),
    }


def defaults(tensors: dict[str, Tensor]) -> Answer:
    """The numbers of a `GRPOConfig` where a user sets none."""
    config = vars(GRPOConfig(output_dir=FOLDER, use_cpu=True, bf16=False))
    return {
        k: v
        for k, v in config.items()
        if isinstance(v, (bool, int, float, str)) or v is None
    }


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)  # TRL makes tensors of Python floats
    calls = {f.__name__: f for f in (loss, step, defaults)}
    serve(["trl", "torch", "transformers"], calls)
