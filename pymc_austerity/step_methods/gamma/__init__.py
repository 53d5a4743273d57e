"""Steps for variables that are made of gamma variables."""
