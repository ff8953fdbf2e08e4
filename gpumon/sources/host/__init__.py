"""The machine and the processes on its GPUs, all from /proc and /sys."""
