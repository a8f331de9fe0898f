"""Secure sums: keys, masks and the server that sees nothing but the total."""
