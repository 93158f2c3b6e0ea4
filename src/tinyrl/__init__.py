"""tinyrl: training-inference mismatch in LLM reinforcement learning, on a small GPT.

Where to look: a loss is in `objectives`, a weight for it in `correction`, what frameworks
call the two in `presets`. `metrics.compare` measures two arrays of logprobs at a glance,
`monitoring.monitor` in full: its numbers are defined in `measures`, from the sums that
`tally` makes, and judged in `alarms`. `diagnosis.diagnose` says why they differ.

Importing this is cheap: torch comes with the first module that computes. Each file uses
only those above it:

- words for people: said, wrapping
- what decides a logprob: formats, attention, kernels, logprobs, moe, positions, model,
  pretrained, parallel, tokens, tasks, sampling, stack
- who samples and who scores: rollout, scoring, collate
- what a loss does with it: advantages, objectives, correction, presets, explain
- what is measured: metrics, agreement, tally, measures, monitoring, intervals, alarms,
  framework_names, routing
- training: recipe, sft, experience, critic, steps, trainer, snapshots, exposure,
  checkpoints, json_values, runs, sweeps
- for the learner and the engineer: diagnosis, course, cli
"""


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import version

        return version("tinyrl")
    raise AttributeError(f"module 'tinyrl' has no attribute {name!r}")
