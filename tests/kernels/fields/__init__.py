"""Moves of fields."""
