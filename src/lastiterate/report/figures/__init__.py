"""The figures, one idea per file. Each takes what other rooms computed and only draws it."""
