"""Asking a model: batched decoding, exact-match recall, baselines, and attention maps."""
