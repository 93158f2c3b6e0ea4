"""Judge an answer: call it safely, compare, name the mistake, help; here or in a worker.

checks is `check`, coach the help; judging walks an answer through the cases of an exercise.
In the order of a call: guarded_call, comparison (with perturbations for what float32 may
lose), messages. Where answers run elsewhere: remote asks, over wire, the worker that
start_worker started or forking forked. kill_matrix tries every known wrong answer.
"""
