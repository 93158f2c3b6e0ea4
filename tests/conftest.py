"""Hypothesis for a shared machine: no time limit on an example, the same ones every run."""

import torch
from hypothesis import settings

torch.set_num_threads(1)  # small models: a second thread only waits, and slows the first

settings.register_profile("tinyrl", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=2000)  # by hand, for bugs
settings.load_profile("tinyrl")
