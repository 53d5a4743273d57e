"""Chains: here, in processes of their own, or on a cluster."""
