"""Record what an endpoint really answers: the embedded AWS beside AWS itself.

A set of small pipelines and calls (:mod:`cases`) is run against AWS_ENDPOINT_URL or the account of
the credentials; states, shapes, reasons and orders are kept, without anything that
differs from run to run and from account to account.
"""
