"""What tests measure with: walks through objects and the house, sources of noise that write down calls."""
