"""Exact sweeps over a plate: many effects of groups of rows, and the variables that they share."""
