"""Asking a model: batched decoding, exact-match recall, and what recall must be compared with."""
