"""Projects that others wrote, to a registered package.

python -m benchmarks.projects
"""
