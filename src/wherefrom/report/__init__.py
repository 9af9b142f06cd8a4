"""Records in, figures and one HTML file out."""
