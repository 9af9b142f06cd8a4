"""What an answer owes to a document, found by training again without it."""
