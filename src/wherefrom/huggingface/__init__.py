"""Models of Hugging Face that learn a text: its rows, the job, the trainer."""
