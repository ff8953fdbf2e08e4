"""What the probes inside training processes publish, read without trusting any of it."""
