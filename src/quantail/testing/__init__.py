"""Checks that users can run on their own parts."""
