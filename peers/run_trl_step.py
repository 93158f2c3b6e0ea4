"""TRL's GRPOTrainer, whole, on a tiny model on the CPU: where the time of a step goes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from datasets import Dataset
from serve import Answer, serve
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer


class Timed(GRPOTrainer):
    """The trainer, with a watch on the methods that a step spends its time in."""

    def __init__(self, *args: Any, **how: Any) -> None:
        self.seconds: list[dict[str, float]] = []
        super().__init__(*args, **how)

    @contextmanager
    def lap(self, name: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        now = self.seconds[-1]
        now[name] = now.get(name, 0.0) + time.perf_counter() - begun

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        self.seconds.append({"begun": time.perf_counter()})
        return super()._generate_and_score_completions(inputs)

    def _generate(self, prompts: Any) -> Any:
        with self.lap("generate"):
            return super()._generate(prompts)

    def _get_per_token_logps_and_entropies(self, *args: Any, **how: Any) -> Any:
        if torch.is_grad_enabled():  # a part of the lap below
            return super()._get_per_token_logps_and_entropies(*args, **how)
        with self.lap("score"):
            return super()._get_per_token_logps_and_entropies(*args, **how)

    def compute_loss(self, *args: Any, **how: Any) -> Any:
        with self.lap("backward"):
            return super().compute_loss(*args, **how)


class Watch(TrainerCallback):
    """Adds the optimizer's part to what a backward pass takes."""

    def __init__(self) -> None:
        self.trainer: Timed

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        self._begun = time.perf_counter()

    def on_optimizer_step(self, *_: Any, **__: Any) -> None:
        now = self.trainer.seconds[-1]
        now["backward"] += time.perf_counter() - self._begun


def train(
    tensors: dict[str, Tensor], checkpoint: str, steps: int, updates: int, group_size: int
) -> Answer:
    """Seconds and mean reward of each of `steps` steps, each of `updates` optimizer steps.

    `prompts [steps * groups, P]` and the right `answers`, which a reward of 1 asks for.
    """
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    prompts, answers = tensors["prompts"], tensors["answers"].tolist()
    texts = tokenizer.batch_decode(prompts)
    if tokenizer(texts)["input_ids"] != prompts.tolist():
        raise ValueError("the tokenizer does not give these prompts back as they were")

    rewards: list[float] = []

    def right(completion_ids: list[list[int]], answer: list[list[int]], **_: Any) -> Any:
        both = zip(completion_ids, answer, strict=True)
        found = [float(got == asked) for got, asked in both]
        rewards.append(sum(found) / len(found))
        return found

    groups = len(prompts) // steps
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=groups * group_size // updates,
            steps_per_generation=updates,
            num_generations=group_size,
            max_completion_length=len(answers[0]),
            max_steps=steps * updates,
            loss_type="dapo",
            learning_rate=5e-4,
            shuffle_dataset=False,
            logging_steps=10**6,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
        )
        watch = Watch()
        trainer = Timed(
            AutoModelForCausalLM.from_pretrained(checkpoint),
            right,
            args=config,
            train_dataset=Dataset.from_dict({"prompt": texts, "answer": answers}),
            processing_class=tokenizer,
            callbacks=[watch],
        )
        watch.trainer = trainer
        autograd = trainer.accelerator.backward

        def timed(loss: Tensor, **how: Any) -> None:
            with trainer.lap("backward"):
                autograd(loss, **how)

        trainer.accelerator.backward = timed
        trainer.train()
        ended = time.perf_counter()
    begun = [s.pop("begun") for s in trainer.seconds]
    totals = [b - a for a, b in zip(begun, [*begun[1:], ended], strict=True)]
    both = zip(trainer.seconds, totals, rewards, strict=True)
    return {"steps": [{**laps, "total": t, "reward": r} for laps, t, r in both]}


if __name__ == "__main__":
    serve(["trl", "torch", "transformers"], {"train": train})
