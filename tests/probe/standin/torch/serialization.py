import time


def save(obj, f, seconds=0.0):
    time.sleep(seconds)
