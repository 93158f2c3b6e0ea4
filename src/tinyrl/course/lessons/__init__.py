"""What single lessons measure, where it is too long for a cell."""
