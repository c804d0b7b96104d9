"""Figures of stored records, solutions and trainings, by matplotlib; a module per kind."""
