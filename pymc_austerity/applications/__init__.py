"""What is built on the kernels: models with steps of their own."""
