"""One decoder, several mixers, and the way out to the ecosystem."""
