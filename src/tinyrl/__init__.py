"""tinyrl: training-inference mismatch in LLM reinforcement learning, on a small GPT.

Importing this is cheap: torch comes with the first module that computes. Each file uses
only those above it: formats, attention, kernels, logprobs, moe, positions, model,
pretrained, parallel, tokens, tasks, sampling, stack, rollout, scoring, advantages,
objectives, correction, presets, explain, metrics, routing, trainer; then what is built on
them: checkpoints, diagnosis, course, cli.
"""


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import version

        return version("tinyrl")
    raise AttributeError(f"module 'tinyrl' has no attribute {name!r}")
