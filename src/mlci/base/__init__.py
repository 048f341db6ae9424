"""What every room stands on: errors for people, files that appear whole, the names of outcomes and measures."""
