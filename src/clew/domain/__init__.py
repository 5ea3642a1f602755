"""What is true about threads. Plain Python: no I/O, no clock, no frameworks."""
