"""Other programs: run with bounds, ended with all they started, and known again by whoever comes after us."""
