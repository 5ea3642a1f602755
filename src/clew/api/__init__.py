"""HTTP: one router a resource, one table of errors, one guard in front of everything."""
