"""How well the confidence tells right from wrong, beside rivals."""
