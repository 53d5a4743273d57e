"""Certified bounds on all log ratios at once, without a pass over the data."""
