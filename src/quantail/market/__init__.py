"""bars -> features: what the market did, and what may be known of it when."""
