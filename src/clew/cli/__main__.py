"""`python -m clew.cli`, for where the `clew` script is not on the path."""

from clew.cli import main

main()
