"""Judge an answer: call it safely, compare, name the mistake, help; here or in a worker."""
