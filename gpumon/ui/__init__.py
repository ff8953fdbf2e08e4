"""The live screen: the only place that imports Textual."""
