"""Likelihoods that bounds are known for, one file each."""
