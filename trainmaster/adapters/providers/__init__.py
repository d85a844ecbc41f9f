"""Who has machines."""
