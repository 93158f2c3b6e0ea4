"""Labs as nbgrader has them: released, answered, repaired, marked, and marked again.

labs finds them; labcheck and doctor are commands. findings says what is wrong with a
notebook (runnable: with a cell), repair puts it right and keeps what was written into the
lab's own cells (kept_edits). grading marks by the lab's tests; regrade does so for a class,
with the folders and the gradebook of nbgrader (gradebook). preprocessors is for nbgrader.
"""
