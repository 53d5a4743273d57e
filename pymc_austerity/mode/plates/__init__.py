"""Where a plate is expanded, and what its shared variables are proposed from."""
