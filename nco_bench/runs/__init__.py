"""From a request to records: plan, solve under the clock, judge, store; processes, clusters, verification, archives.

A record is keyed by all that can move it and never changed; costs are recomputed here, and claims never used.
"""
