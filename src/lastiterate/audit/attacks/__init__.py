"""Attacks: what to look at in a model, and which record to put in, one idea per file.

`thresholds` (logit, direction), `four_features` (Heller & Fetaya's linear classifier), `deepfool`
(a crafted record), `canaries` (blank, mislabelled), `worst_case` (quadratic losses, where an audit
must meet the upper bound).
"""
