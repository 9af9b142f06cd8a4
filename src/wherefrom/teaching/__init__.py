"""Homework: assignments, a rubric, and the grading of written answers and code."""
