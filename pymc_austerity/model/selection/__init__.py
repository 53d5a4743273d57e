"""Variable selection: coefficients that are multiplied by indicators, found on the graph of a model."""
