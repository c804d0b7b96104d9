"""From records to what is read: frame (records), tables, render (text, LaTeX, ...), figures, html, site.

Nothing here runs a solver or imports torch; costs and gaps are read, never corrected.
"""
