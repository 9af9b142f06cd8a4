"""The attention equation, and what can be built with it by hand."""
