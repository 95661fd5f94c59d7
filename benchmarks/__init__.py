"""Measurements behind the numbers we state; `make bench` runs them all."""
