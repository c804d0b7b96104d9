"""The leaderboard: records of others taken in by verification, and the pages made of them."""
