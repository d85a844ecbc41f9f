"""What runs on the training machine."""
