"""Set-up of fields."""
