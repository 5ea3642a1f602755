"""Tables: what kinds of columns they have, and questions to them, computed in SQL."""
