"""What tests measure with."""
