"""Set-up of fields: rows, the order of elimination, the averaged expansion, and bounds."""
