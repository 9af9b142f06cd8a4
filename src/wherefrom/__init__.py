"""Wherefrom: train a small Transformer on a text, and learn where each of its answers came from."""
