"""Child processes: run under limits, ended with their process group, and identified by a later server process."""
