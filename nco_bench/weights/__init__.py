"""Weights and their manifests: found, checked, pulled, imported, exported. Those that ship are in `files`.

Nothing is loaded whose hash is not its manifest's, and no pickle but through the restricted reader.
"""
