"""What acts and what values: encoders, recurrent cores, actors, critics."""
