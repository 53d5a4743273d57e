"""Plates: effects of many groups of rows, found on the graph of a model."""
