"""Where a model came from and where it went: raw data, jobs, the package, endpoints.

Only what AWS says: a job's description, a run's definition, an endpoint's configuration. Where one
of them does not lead on, the graph says that it cannot be known.
"""
