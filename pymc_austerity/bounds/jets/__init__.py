"""Interval Taylor jets: enclosures of all partial derivatives of a scalar expression over a box."""
