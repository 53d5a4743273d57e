"""Langevin dynamics along stochastic gradients, without a test."""
