"""The privacy of the last iterate."""
