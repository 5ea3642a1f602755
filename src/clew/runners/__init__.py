"""Who turns the wheel: claims threads and steps them."""
