"""The checker: is a written construction proved, does it hold, is it refuted?"""
