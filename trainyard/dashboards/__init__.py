"""Dashboards and alarms for CloudWatch and Grafana, generated from the list of measures."""
