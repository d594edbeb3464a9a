"""Other model servers, measured beside Headrace by the same generator."""
