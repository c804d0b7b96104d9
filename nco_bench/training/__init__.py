"""One loop for all networks; recipes from the cards, courses (ways to learn), checkpoints, campaigns.

A new number of a recipe is a field with a default that changes nothing: old checkpoints go on as they were.
"""
