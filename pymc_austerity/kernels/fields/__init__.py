"""Moves of fields: effects of any hierarchy, on an elimination tree."""
