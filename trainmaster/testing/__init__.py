"""What tests and generated files are made with; nothing at run time imports it."""
