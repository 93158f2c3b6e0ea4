"""The interview: its questions and drills, asked in a terminal, a notebook or by Anki."""
