"""tinyrl: training-inference mismatch in LLM reinforcement learning, on a small GPT.

Importing this is cheap: torch comes with the first module that computes. Each file uses
only those above it:

- what decides a logprob: formats, attention, kernels, logprobs, moe, positions, model,
  pretrained, parallel, tokens, tasks, sampling, stack
- who samples and who scores: rollout, scoring, collate
- what a loss does with it: advantages, objectives, correction, presets, explain
- what is measured: metrics, agreement, tally, measures, monitoring, intervals, alarms,
  framework_names, routing
- training: recipe, sft, experience, critic, steps, trainer, snapshots, exposure,
  checkpoints, plain, runs, sweeps
- for the learner and the engineer: diagnosis, course, cli
"""


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import version

        return version("tinyrl")
    raise AttributeError(f"module 'tinyrl' has no attribute {name!r}")
