"""Tables as text, Markdown, LaTeX, CSV or JSON. A renderer knows nothing of where numbers come from."""
