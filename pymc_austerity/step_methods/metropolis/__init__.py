"""Steps that decide Metropolis-Hastings moves from some of the terms."""
