"""What a record adds to a sum that sites are asked for, with its sensitivity and its range."""
