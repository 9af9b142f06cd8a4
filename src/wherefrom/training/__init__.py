"""Recipes, one loop for every phase, and checkpoints that lose nothing."""
