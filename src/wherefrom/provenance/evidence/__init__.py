"""What the text states: an index of the documents, look-up of names and answers."""
