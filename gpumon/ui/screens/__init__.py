"""Screens other than the live one; each is imported when it is first opened."""
