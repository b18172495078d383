"""Experiments without a training run (`rank` warm-starts a tiny model): a table, a plot, JSON each."""
