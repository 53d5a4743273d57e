"""What was here has left the package: the error says where it is. For one version."""

raise ImportError(
    "pymc_austerity.applications has left the package. Latent Dirichlet allocation is a file of the examples "
    "of version 0.1, examples/lda.py, and the Dirichlet-process mixture is examples/dirichlet_process.py. "
    "They run beside an installed package."
)
