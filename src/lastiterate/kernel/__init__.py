"""The checker of certificates: everything that decides whether a claimed number holds.

It imports nothing of this library, only the standard library and python-flint. `check.check`
recomputes what a certificate proves from its JSON content, in ball arithmetic; signatures, files
and chains of certificates are read elsewhere. ``docs/kernel.md`` walks through it.
"""
