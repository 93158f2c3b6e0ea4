"""`make bench`: how fast things are here; ratios are measured side by side in one run."""
