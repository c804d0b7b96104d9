"""Records as columns, and what they come to: cells, gaps to the best references, intervals, comparisons."""
