"""What is minimized; pure functions that return numbers."""
