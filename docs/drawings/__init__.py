"""Drawings of the explanation pages: `python -m docs.drawings` writes them to docs/_static/drawings.

One function draws one picture, and has its name. Everything drawn is computed, nothing is sketched by hand.
"""
