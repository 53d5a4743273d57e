"""The posterior mode, the normal approximation there, and what is made from it."""
