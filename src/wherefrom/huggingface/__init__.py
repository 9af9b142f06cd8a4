"""Models of Hugging Face that learn a text: rows, training, study, trace, twins and forgetting."""
