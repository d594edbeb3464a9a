"""The platform as its users see it: one for all, gone when the last is over."""
