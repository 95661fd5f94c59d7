"""Infrastructure that every package may use and no user imports: formatting, files, progress."""
