"""Chat: a project manager plans, agents carry out its tasks, and documents come out."""
