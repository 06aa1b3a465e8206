"""Figures of a report, as SVG: one family in each file. They need the extra `report` (matplotlib)."""
