"""All N log ratios of a few moves of a step, from states of its chain."""
