"""Dirichlet-process mixtures."""
