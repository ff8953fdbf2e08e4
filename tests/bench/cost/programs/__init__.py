"""Small programs that the benchmark starts beside gpumon: floors to compare with, and gpumon with a past."""
