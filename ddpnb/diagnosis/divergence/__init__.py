"""What goes wrong without anybody waiting."""
