"""Domain: the rules of threads. Plain Python: no I/O, no clock, no frameworks."""
