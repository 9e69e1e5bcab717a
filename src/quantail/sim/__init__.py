"""N markets at once: accounts that trade over shared bars, with exact books."""
