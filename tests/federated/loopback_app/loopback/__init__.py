"""A Flower app: one private run."""
