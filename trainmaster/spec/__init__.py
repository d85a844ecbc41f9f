"""What the user asked for."""
