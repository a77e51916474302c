"""Dashboards and alarms for CloudWatch and Grafana, generated from the list of measures.

The list is ``trainyard.common.measures``: what is measured there appears here. JSON only: nothing
is sent, and no client is needed.
"""
