"""The probe; empty, so that the finder costs a process that trains nothing next to nothing."""
