"""Subsampled MCMC beside everyone: `python -m tests.benchmarks.everyone --help`.

`problems` has the data and models, `reference` what is compared with, `methods` and `peers` the samplers.
`run` starts a `worker` for each, with a plan of how long it may run (`plans`); `score` makes columns of what
comes back, and `figure` a picture.
"""
