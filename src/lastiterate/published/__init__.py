"""Published claims as printed, for study only: refuted ones are marked, none is a guarantee."""
