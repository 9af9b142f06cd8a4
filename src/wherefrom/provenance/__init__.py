"""Where an answer came from: lines of the text that state it, or the model's own guess."""
