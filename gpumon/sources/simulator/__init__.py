"""One physical model of training on GPUs, from which every signal of the demo is derived."""
