"""Experiments without training a language model: seconds each, a table, a plot, JSON."""
