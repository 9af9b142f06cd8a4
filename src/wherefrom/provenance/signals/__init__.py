"""What the model gives away about its answer."""
