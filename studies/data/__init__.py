"""Tables that are read from a folder of the reader's, see `privinf.datasets.load`."""
