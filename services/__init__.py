"""The processes of Headrace; each is a thin shell over `headrace`."""
