"""Dashboards and alarms where teams already look, generated from the one list of measures."""
