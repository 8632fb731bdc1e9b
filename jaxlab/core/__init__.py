"""What every wing of the library uses; imports nothing else of `jaxlab`."""
