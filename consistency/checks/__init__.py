"""The checks of the catalogue, one module a family: each takes a sight and gives its verdicts."""
