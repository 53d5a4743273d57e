"""Scalar expressions of the rows of local terms."""
