"""Acting: collect experience and cut it into sequences."""
