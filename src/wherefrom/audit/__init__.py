"""Models that others trained: is an answer of theirs known or made up?"""
