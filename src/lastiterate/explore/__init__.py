"""The explorer: a local page to describe a run and watch its privacy (Dash, extra ``explore``).

A link or a form becomes a `State` of texts, texts become a description or complaints at their
fields, descriptions become findings in worker processes, findings become a page. Nothing leaves
the machine: the server answers to loopback only. `lastiterate.explore.server.serve` runs it; the
workers import this package too, so nothing is imported here.
"""
