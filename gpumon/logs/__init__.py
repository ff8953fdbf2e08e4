"""Logs that other tools wrote: one file per foreign format, all giving the same Snapshots as a live run."""
