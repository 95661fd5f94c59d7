"""The figures, one idea per file. Each takes what was computed elsewhere and only draws it."""
