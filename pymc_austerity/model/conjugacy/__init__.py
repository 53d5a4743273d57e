"""Variables that are made of gamma variables, and likelihoods that are conjugate to them."""
