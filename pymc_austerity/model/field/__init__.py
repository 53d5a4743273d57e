"""A hierarchy as a field: rows that are linear in effects, and effects that are normal given few numbers."""
