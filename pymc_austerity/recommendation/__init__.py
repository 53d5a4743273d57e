"""Which step suits a model, and why."""
