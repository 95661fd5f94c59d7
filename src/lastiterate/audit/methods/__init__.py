"""From counted errors of a fixed test to a lower bound, one method per file.

`clopper_pearson` and `gdp` are confidence bounds; `one_run` bounds from guesses about many
canaries in one model; `credible` is a Bayesian interval that errs more often than it says.
"""
