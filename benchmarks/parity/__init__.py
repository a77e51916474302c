"""Record what an endpoint really answers: the embedded AWS beside AWS itself.

A set of small pipelines and calls (:mod:`cases`) is run against AWS_ENDPOINT_URL or the account of
the credentials. States, shapes, reasons and orders are kept, without anything that differs from run
to run or says whose account it was. Each difference from ``emulator.json`` is a row
(:mod:`comparison_rows`).
"""
