"""Text and facts in, training examples out."""
