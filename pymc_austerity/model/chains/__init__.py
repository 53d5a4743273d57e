"""Latent chains of states: found on the graph of a model, as what a particle filter needs."""
