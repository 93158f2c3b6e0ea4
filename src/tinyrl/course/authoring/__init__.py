"""For authors: notebooks, labs and the question bank, built from text."""
