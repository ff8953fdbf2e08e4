"""The driver: everything that says pynvml; its errors become None, a lost GPU, or one line."""
