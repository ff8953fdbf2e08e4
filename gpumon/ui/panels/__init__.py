"""The parts of the live screen: each knows what one of them says, as rows of text, without a terminal."""
