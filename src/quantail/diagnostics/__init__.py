"""Is it healthy? Every metric is declared in schema."""
