"""Engine: runs threads, decides through the domain and saves through the store. Knows ports, not adapters."""
