"""Logs of jobs as CloudWatch has them: which there are, their lines, what is looked for in them."""
