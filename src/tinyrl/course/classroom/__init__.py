"""Labs as nbgrader has them: released, answered, repaired, marked, and marked again."""
