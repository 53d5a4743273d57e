"""A kernel compiled around a model, and called."""
