"""One decoder with several mixers, and its export to Hugging Face transformers."""
