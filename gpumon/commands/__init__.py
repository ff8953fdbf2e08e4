"""What gpumon does without a screen: one file per verb."""
