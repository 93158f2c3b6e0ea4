"""Widgets to turn and look at, and the pictures and tables in them."""
