"""Applications: chat, coding and interview. Only `clew.server` imports one."""
