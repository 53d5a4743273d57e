"""The log density of a model as PyTensor graphs, in a form that later rooms can read."""
