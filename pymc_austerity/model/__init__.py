"""The only readers of PyMC and PyTensor graphs."""
