"""Tables of a frame, by name; what a table is stands in `table`."""
