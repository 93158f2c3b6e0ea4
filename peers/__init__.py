"""Other systems' own functions, each in its own environment, to compare tinyrl with."""
