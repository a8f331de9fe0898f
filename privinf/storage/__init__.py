"""Files that the package writes and reads back: text with checksums, and containers of arrays."""
