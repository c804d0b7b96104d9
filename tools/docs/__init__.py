"""The documentation site: pages made from commands, cards, records and papers, beside those written by hand in docs/."""
