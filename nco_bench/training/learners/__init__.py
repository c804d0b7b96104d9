"""The ways to learn: a learner draws data from seed and step and returns a loss; a course prepares it."""
