"""The pages, one module each: a dictionary first, and HTML made from it."""
