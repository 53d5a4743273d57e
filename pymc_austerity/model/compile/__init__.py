"""Compile graphs to machine code."""
