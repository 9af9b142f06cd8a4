"""The page: what the lab knows, to look at and to touch in a browser."""
