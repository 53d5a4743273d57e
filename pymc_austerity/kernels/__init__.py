"""Pure transition kernels, written once and run interpreted or compiled by numba."""
