"""Figures of the library beside those of its peers, measured in one run: `make bench`."""
